// Jobs of asynq, whose server is killed.
//
//	asynq_jobs PORT COUNT KILL...
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

var runs atomic.Int64

func double(_ context.Context, task *asynq.Task) error {
	runs.Add(1)
	n, err := strconv.Atoi(string(task.Payload()))
	if err != nil {
		return err
	}
	_, err = task.ResultWriter().Write([]byte(strconv.Itoa(2 * n)))
	return err
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	return value
}

// Says whether a check has passed.
func tell(name string, isPassed bool, words string) {
	verdict := "failed"
	if isPassed {
		verdict = "passed"
	}
	fmt.Printf("%s %s: %s\n", verdict, name, words)
}

func main() {
	count := must(strconv.Atoi(os.Args[2]))
	redis := asynq.RedisClientOpt{Addr: "127.0.0.1:" + os.Args[1]}
	client := asynq.NewClient(redis)
	ids := make([]string, count)
	for n := range ids {
		task := asynq.NewTask("double", []byte(strconv.Itoa(n)))
		info := must(client.Enqueue(task, asynq.Retention(time.Hour), asynq.MaxRetry(100)))
		ids[n] = info.ID
	}
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency:              4,
		DelayedTaskCheckInterval: time.Second,
		LogLevel:                 asynq.ErrorLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration {
			return time.Second
		},
	})
	if err := server.Start(asynq.HandlerFunc(double)); err != nil {
		must(0, err)
	}
	inspector := asynq.NewInspector(redis)
	kills := 0
	for {
		info, err := inspector.GetQueueInfo("default")
		if err == nil && kills < 2 && info.Completed >= count*(kills+1)/3 {
			must(exec.Command(os.Args[3], os.Args[4:]...).Output())
			kills++
		}
		if err == nil && info.Completed >= count {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	results, sum := 0, 0
	for _, id := range ids {
		info := must(inspector.GetTaskInfo("default", id))
		sum += must(strconv.Atoi(string(info.Result)))
		results++
	}
	tell("kills", kills == 2, fmt.Sprintf("%d were in time", kills))
	isExact := results == count && sum == count*(count-1)
	tell("sum", isExact, fmt.Sprintf("%d results, %d", results, sum))
	again := runs.Load() - int64(count)
	fmt.Printf("told %d jobs of asynq, %d kills, sum %d, %d done again\n", count, kills, sum, again)
}
