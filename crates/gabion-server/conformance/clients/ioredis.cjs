// What programs do with ioredis, and a kill of the server in the middle.
//
//     node ioredis.cjs PORT COUNT KILL...
//
// KILL is the command that kills the server and starts it again. Prints a line for each check.
'use strict';

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const { promisify } = require('node:util');
const Redis = require('ioredis');

const [port, count] = process.argv.slice(2, 4).map(Number);
const [kill, ...killWords] = process.argv.slice(4);
const PATIENCE_MS = 60_000;

const clients = [];
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const numbers = (length) => Array.from({ length }, (_, number) => number);
const times = async (job) => {
    for (const number of numbers(count)) await job(number);
};

function connect() {
    const client = new Redis({ host: '127.0.0.1', port, retryStrategy: () => 20 });
    // It connects again; what was asked meanwhile fails by itself, or waits.
    client.on('error', () => {});
    clients.push(client);
    return client;
}

const client = connect();
const pool = numbers(8).map(connect);

const checks = {
    async pool() {
        await Promise.all(pool.map((of, worker) => times(async (number) => {
            await of.set(`${worker}:${number}`, number);
            assert.equal(await of.get(`${worker}:${number}`), String(number));
            await of.incr('all');
        })));
        assert.equal(await client.get('all'), String(pool.length * count));
    },

    async pipeline() {
        const pipeline = client.pipeline();
        await times((number) => {
            pipeline.set(`key:${number}`, number).incr('sum').hset('hash', `f${number}`, number);
        });
        pipeline.lpop('sum');
        const replies = await pipeline.exec();
        const last = replies.pop();
        assert.match(last[0].message, /^WRONGTYPE/);
        const expected = numbers(count).flatMap((number) => ['OK', number + 1, 1]);
        assert.deepEqual(replies.map(([, reply]) => reply), expected);
        assert.equal(await client.hlen('hash'), count);
    },

    async transaction() {
        await client.mset('a', 1000, 'b', 1000);
        const move = (of) => times(() => of.multi().decr('a').incr('b').exec());
        const look = (of) => times(async () => {
            const [a, b] = await of.mget('a', 'b');
            assert.equal(Number(a) + Number(b), 2000);
        });
        await Promise.all([move(pool[0]), move(pool[1]), look(pool[2])]);
        const expected = [1000 - 2 * count, 1000 + 2 * count].map(String);
        assert.deepEqual(await client.mget('a', 'b'), expected);
    },

    async watch() {
        await client.set('n', 0);
        const add = (of) => times(async () => {
            for (;;) {
                await of.watch('n');
                const found = Number(await of.get('n'));
                if (await of.multi().set('n', found + 1).exec() !== null) return;
            }
        });
        await Promise.all(pool.slice(0, 3).map(add));
        assert.equal(await client.get('n'), String(3 * count));
        await pool[0].watch('n');
        await client.set('n', 'changed');
        assert.equal(await pool[0].multi().set('n', 'overwritten').exec(), null);
        assert.equal(await client.get('n'), 'changed');
    },

    async messages() {
        const listener = connect();
        const found = { message: [], pmessage: [] };
        listener.on('message', (_, text) => found.message.push(text));
        listener.on('pmessage', (_, __, text) => found.pmessage.push(text));
        await listener.subscribe('news');
        await listener.psubscribe('new?');
        await times(async (number) => assert.equal(await client.publish('news', number), 2));
        await until(() => found.message.length + found.pmessage.length === 2 * count);
        for (const texts of Object.values(found)) {
            assert.deepEqual(texts, numbers(count).map(String));
        }
    },

    async scripts() {
        const reply = await client.eval('return {KEYS[1], ARGV[1], #ARGV}', 1, 'k', 'a', 'b');
        assert.deepEqual(reply, ['k', 'a', 2]);
        await assert.rejects(client.evalsha('0'.repeat(40), 0), /NOSCRIPT/);
        const lua = "local n = redis.call('INCR', KEYS[1]) redis.call('RPUSH', KEYS[2], n)";
        for (const of of pool) of.defineCommand('append_next', { numberOfKeys: 2, lua });
        await Promise.all(pool.map((of) => times(() => of.append_next('n', 'list'))));
        const expected = numbers(pool.length * count).map((number) => String(number + 1));
        assert.deepEqual(await client.lrange('list', 0, -1), expected);
        const wrong = client.eval("return redis.call('LPOP', KEYS[1])", 1, 'n');
        await assert.rejects(wrong, /WRONGTYPE/);
    },

    async blocking() {
        assert.equal(await client.blpop('queue', 0.05), null);
        const found = [];
        const take = async (of) => {
            for (;;) {
                const [, item] = await of.blpop('first', 'queue', PATIENCE_MS / 1000);
                if (item === 'end') return;
                found.push(Number(item));
            }
        };
        const give = async () => {
            await times((number) => client.rpush('queue', number));
            await client.rpush('queue', 'end', 'end');
        };
        await Promise.all([take(pool[0]), take(pool[1]), give()]);
        assert.deepEqual(found.sort((a, b) => a - b), numbers(count));
        const moved = pool[0].blmove('from', 'to', 'LEFT', 'RIGHT', PATIENCE_MS / 1000);
        await client.rpush('from', 'x');
        assert.equal(await moved, 'x');
        const least = pool[0].bzpopmin('scores', PATIENCE_MS / 1000);
        await client.zadd('scores', 1.5, 'm');
        assert.deepEqual(await least, ['scores', 'm', '1.5']);
    },

    async stream() {
        await client.xgroup('CREATE', 'stream', 'group', '0', 'MKSTREAM');
        await times((number) => client.xadd('stream', '*', 'number', number));
        const found = [];
        const consume = async (of, name) => {
            while (found.length < count) {
                const read = await of.xreadgroup(
                    'GROUP', 'group', name, 'COUNT', 7, 'BLOCK', 50, 'STREAMS', 'stream', '>',
                );
                for (const [id, [, number]] of read === null ? [] : read[0][1]) {
                    found.push(Number(number));
                    if (number % 10 !== 0) assert.equal(await of.xack('stream', 'group', id), 1);
                }
            }
        };
        await Promise.all([consume(pool[0], 'one'), consume(pool[1], 'two')]);
        assert.deepEqual(found.sort((a, b) => a - b), numbers(count));
        const left = Math.ceil(count / 10);
        assert.equal((await client.xpending('stream', 'group'))[0], left);
        const claimed = await client.xautoclaim('stream', 'group', 'three', 0, '0', 'COUNT', count);
        assert.equal(claimed[1].length, left);
        const pending = await client.xpending('stream', 'group');
        assert.deepEqual(pending[3], [['three', String(left)]]);
    },

    async expiry() {
        await client.set('soon', 1, 'PX', 50);
        await client.set('later', 1, 'EX', 1000);
        await client.hset('hash', { soon: 1, later: 1 });
        const expires = await client.call('HPEXPIRE', 'hash', 50, 'FIELDS', 1, 'soon');
        assert.deepEqual(expires, [1]);
        const left = await client.ttl('later');
        assert.ok(left > 990 && left <= 1000);
        assert.equal(await client.getex('later', 'PERSIST'), '1');
        assert.equal(await client.ttl('later'), -1);
        await until(async () => await client.exists('soon') + await client.hlen('hash') === 1);
        assert.deepEqual(await client.hgetall('hash'), { later: '1' });
        assert.equal(await client.ttl('soon'), -2);
    },

    async 'kill'() {
        await client.flushall();
        await Promise.all([killServer(), consume(), listen(), ...Object.keys(writes).map(write)]);
    },

    async 'kill keeps acknowledged'() {
        const entries = await client.xrange('entries', '-', '+');
        const found = new Set(entries.map(([, [, number]]) => Number(number)));
        for (const [kind, numbers] of Object.entries(acknowledged)) {
            assert.ok(numbers.length >= 2 * count);
            for (const n of numbers) {
                if (kind === 'entry') assert.ok(found.has(n), `entry ${n}`);
                else assert.deepEqual(await client.mget(keysOf(kind, n)), [String(n), String(n)]);
            }
        }
    },

    async 'kill leaves wholes'() {
        for (const kind of ['pair', 'script']) {
            for (let n = 1; n <= attempts[kind]; n += 1) {
                const [one, other] = await client.mget(keysOf(kind, n));
                assert.equal(one, other, `${kind} ${n}`);
            }
        }
    },

    async 'kill and a blocked consumer'() {
        assert.deepEqual(taken, ['after']);
    },

    async 'kill and a subscriber'() {
        assert.equal(heard[0], 'after');
    },
};

async function until(condition) {
    const end = Date.now() + PATIENCE_MS;
    while (!await condition()) {
        assert.ok(Date.now() < end, 'it takes too long');
        await sleep(5);
    }
}

// Writers, a consumer and a subscriber while the server is killed and started again.

const keysOf = (kind, n) => [`${kind}:${n}:a`, `${kind}:${n}:b`];
const failIfOneFailed = (replies) => {
    for (const [error] of replies) if (error) throw error;
};
const LUA_PAIR = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1])";
const writes = {
    async key(of, one, other, n) {
        await of.set(one, n);
        await of.set(other, n);
    },
    async pipeline(of, one, other, n) {
        failIfOneFailed(await of.pipeline().set(one, n).set(other, n).exec());
    },
    async pair(of, one, other, n) {
        failIfOneFailed(await of.multi().set(one, n).set(other, n).exec());
    },
    async script(of, one, other, n) {
        await of.write_pair(one, other, n);
    },
    async entry(of, one, other, n) {
        await of.xadd('entries', '*', 'n', n);
    },
};
const acknowledged = Object.fromEntries(Object.keys(writes).map((kind) => [kind, []]));
const attempts = {};
const taken = [];
const heard = [];
let isBack = false;

async function killServer() {
    try {
        await until(() => Object.values(acknowledged).every((of) => of.length >= count));
        await promisify(execFile)(kill, killWords);
    } finally {
        isBack = true;
    }
    await client.rpush('queue', 'after');
    await until(async () => {
        await client.publish('news', 'after');
        return heard.length > 0;
    });
}

async function write(kind, index) {
    const of = pool[index];
    of.defineCommand('write_pair', { numberOfKeys: 2, lua: LUA_PAIR });
    for (let left = count, n = 1; left > 0; n += 1) {
        attempts[kind] = n;
        try {
            await writes[kind](of, ...keysOf(kind, n), n);
            acknowledged[kind].push(n);
            left -= isBack ? 1 : 0;
        } catch (error) {
            // Only the loss of a connection is expected: an error of the server is none.
            if (error.name === 'ReplyError') throw error;
            await sleep(10);
        }
    }
}

async function consume() {
    const of = connect();
    const end = Date.now() + PATIENCE_MS;
    while (taken.length === 0 && Date.now() < end) {
        const found = await of.blpop('queue', 5).catch(() => null);
        if (found !== null) taken.push(found[1]);
    }
}

// It subscribes once: the client subscribes again by itself.
async function listen() {
    const of = connect();
    of.on('message', (_, text) => heard.push(text));
    await of.subscribe('news');
}

async function main() {
    for (const [name, check] of Object.entries(checks)) {
        try {
            if (!name.startsWith('kill')) await client.flushall();
            await check();
            console.log(`passed ${name}`);
        } catch (error) {
            console.log(`failed ${name}: ${error.stack.split('\n').slice(0, 4).join(' | ')}`);
        }
    }
    for (const of of clients) of.disconnect();
}

main();
