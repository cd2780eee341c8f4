// Jobs of BullMQ, whose server is killed.
//
//     node bullmq_jobs.cjs PORT COUNT KILL...
'use strict';

const { execFile } = require('node:child_process');
const { promisify } = require('node:util');
const { Queue, Worker } = require('bullmq');

const [port, count] = process.argv.slice(2, 4).map(Number);
const [kill, ...killWords] = process.argv.slice(4);
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function main() {
    const queue = new Queue('jobs', { connection });
    queue.on('error', () => {});
    for (let first = 0; first < count; first += 1000) {
        const length = Math.min(1000, count - first);
        const numbers = Array.from({ length }, (_, index) => first + index);
        await queue.addBulk(numbers.map((n) => ({ name: 'double', data: { n } })));
    }
    let runs = 0;
    const work = async (job) => {
        runs += 1;
        // So that some are under way whenever the server dies.
        await sleep(2);
        return 2 * job.data.n;
    };
    const options = { connection, concurrency: 4, stalledInterval: 2000, lockDuration: 4000 };
    const workers = [1, 2].map(() => new Worker('jobs', work, options));
    for (const worker of workers) worker.on('error', () => {});
    let kills = 0;
    for (;;) {
        const { completed } = await queue.getJobCounts('completed');
        if (kills < 2 && completed >= Math.floor(count * (kills + 1) / 3)) {
            await promisify(execFile)(kill, killWords);
            kills += 1;
        }
        if (completed >= count) break;
        await sleep(20);
    }
    const results = (await queue.getCompleted(0, -1)).map((job) => job.returnvalue);
    const sum = results.reduce((all, result) => all + result, 0);
    const isExact = results.length === count && sum === count * (count - 1);
    console.log(`${kills === 2 ? 'passed' : 'failed'} kills: ${kills} were in time`);
    console.log(`${isExact ? 'passed' : 'failed'} sum: ${results.length} results, ${sum}`);
    const again = runs - count;
    console.log(`told ${count} jobs of BullMQ, ${kills} kills, sum ${sum}, ${again} done again`);
    process.exit(0);
}

main().catch((error) => {
    console.log(`failed: ${error.stack}`);
    process.exit(1);
});
