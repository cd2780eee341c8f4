// What programs do with go-redis, and a kill of the server in the middle.
//
//	go_redis PORT COUNT KILL...
//
// KILL is the command that kills the server and starts it again. Prints a line for each check.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const patience = time.Minute

var (
	background = context.Background()
	client     *redis.Client
	count      int
	kill       []string
)

// same fails the check that runs if two values are not the same.
func same(found, expected any) {
	if fmt.Sprint(found) != fmt.Sprint(expected) {
		panic(fmt.Errorf("%v in place of %v", found, expected))
	}
}

// must fails the check that runs if there is an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// together runs jobs side by side, and fails if one of them does.
func together(jobs ...func()) {
	failures := make(chan any, len(jobs))
	for _, job := range jobs {
		go func() {
			defer func() { failures <- recover() }()
			job()
		}()
	}
	for range jobs {
		if failure := <-failures; failure != nil {
			panic(failure)
		}
	}
}

func until(condition func() bool) {
	for end := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			panic(errors.New("it takes too long"))
		}
	}
}

func numbers(length, first int) []string {
	all := make([]string, length)
	for number := range all {
		all[number] = strconv.Itoa(first + number)
	}
	return all
}

func checkPool() {
	var jobs []func()
	for worker := range 20 {
		jobs = append(jobs, func() {
			for number := range count {
				key := fmt.Sprintf("%d:%d", worker, number)
				must(client.Set(background, key, number, 0).Result())
				same(must(client.Get(background, key).Int()), number)
				must(client.Incr(background, "all").Result())
			}
		})
	}
	together(jobs...)
	same(must(client.Get(background, "all").Int()), 20*count)
}

func checkPipeline() {
	pipeline := client.Pipeline()
	for number := range count {
		pipeline.Set(background, fmt.Sprint("key:", number), number, 0)
		pipeline.Incr(background, "sum")
		pipeline.HSet(background, "hash", fmt.Sprint("f", number), number)
	}
	wrong := pipeline.LPop(background, "sum")
	replies, _ := pipeline.Exec(background)
	same(strings.HasPrefix(wrong.Err().Error(), "WRONGTYPE"), true)
	for number := range count {
		same(replies[3*number].(*redis.StatusCmd).Val(), "OK")
		same(replies[3*number+1].(*redis.IntCmd).Val(), number+1)
		same(replies[3*number+2].(*redis.IntCmd).Val(), 1)
	}
	same(must(client.HLen(background, "hash").Result()), count)
}

func checkTransaction() {
	must(client.MSet(background, "a", 1000, "b", 1000).Result())
	move := func() {
		for range count {
			must(client.TxPipelined(background, func(pipeline redis.Pipeliner) error {
				pipeline.Decr(background, "a")
				pipeline.Incr(background, "b")
				return nil
			}))
		}
	}
	look := func() {
		for range count {
			found := must(client.MGet(background, "a", "b").Result())
			a, b := must(strconv.Atoi(found[0].(string))), must(strconv.Atoi(found[1].(string)))
			same(a+b, 2000)
		}
	}
	together(move, move, look)
	expected := []int{1000 - 2*count, 1000 + 2*count}
	same(must(client.MGet(background, "a", "b").Result()), expected)
}

func checkWatch() {
	must(client.Set(background, "n", 0, 0).Result())
	add := func() {
		for range count {
			for {
				err := client.Watch(background, func(tx *redis.Tx) error {
					found := must(tx.Get(background, "n").Int())
					_, err := tx.TxPipelined(background, func(pipeline redis.Pipeliner) error {
						pipeline.Set(background, "n", found+1, 0)
						return nil
					})
					return err
				}, "n")
				if err == nil {
					break
				}
				same(err, redis.TxFailedErr)
			}
		}
	}
	together(add, add, add)
	same(must(client.Get(background, "n").Int()), 3*count)
	err := client.Watch(background, func(tx *redis.Tx) error {
		must(client.Set(background, "n", "changed", 0).Result())
		_, err := tx.TxPipelined(background, func(pipeline redis.Pipeliner) error {
			pipeline.Set(background, "n", "overwritten", 0)
			return nil
		})
		return err
	}, "n")
	same(err, redis.TxFailedErr)
	same(must(client.Get(background, "n").Result()), "changed")
}

func checkMessages() {
	listener := client.Subscribe(background, "news")
	defer listener.Close()
	must(listener.Receive(background))
	if err := listener.PSubscribe(background, "new?"); err != nil {
		panic(err)
	}
	must(listener.Receive(background))
	for number := range count {
		same(must(client.Publish(background, "news", number).Result()), 2)
	}
	var plain, pattern []string
	for range 2 * count {
		message := must(listener.ReceiveMessage(background))
		if message.Pattern == "" {
			plain = append(plain, message.Payload)
		} else {
			pattern = append(pattern, message.Payload)
		}
	}
	same(plain, numbers(count, 0))
	same(pattern, numbers(count, 0))
}

func checkScripts() {
	echo := client.Eval(background, "return {KEYS[1], ARGV[1], #ARGV}", []string{"k"}, "a", "b")
	same(must(echo.Result()), []any{"k", "a", 2})
	err := client.EvalSha(background, strings.Repeat("0", 40), nil).Err()
	same(redis.HasErrorPrefix(err, "NOSCRIPT"), true)
	script := redis.NewScript(
		"local n = redis.call('INCR', KEYS[1]) redis.call('RPUSH', KEYS[2], n) return n")
	run := func() {
		for range count {
			must(script.Run(background, client, []string{"n", "list"}).Result())
		}
	}
	together(run, run, run)
	same(must(client.LRange(background, "list", 0, -1).Result()), numbers(3*count, 1))
	err = client.Eval(background, "return redis.call('LPOP', KEYS[1])", []string{"n"}).Err()
	same(strings.Contains(err.Error(), "WRONGTYPE"), true)
}

func checkBlocking() {
	same(client.BLPop(background, time.Second, "queue").Err(), redis.Nil)
	var lock sync.Mutex
	var found []string
	take := func() {
		for {
			item := must(client.BLPop(background, patience, "first", "queue").Result())[1]
			if item == "end" {
				return
			}
			lock.Lock()
			found = append(found, item)
			lock.Unlock()
		}
	}
	give := func() {
		for number := range count {
			must(client.RPush(background, "queue", number).Result())
		}
		must(client.RPush(background, "queue", "end", "end").Result())
	}
	together(take, take, give)
	sortNumbers(found)
	same(found, numbers(count, 0))
	together(func() {
		moved := client.BLMove(background, "from", "to", "LEFT", "RIGHT", patience)
		same(must(moved.Result()), "x")
	}, func() { must(client.RPush(background, "from", "x").Result()) })
	together(func() {
		least := must(client.BZPopMin(background, patience, "scores").Result())
		same([]any{least.Key, least.Member, least.Score}, []any{"scores", "m", 1.5})
	}, func() {
		must(client.ZAdd(background, "scores", redis.Z{Score: 1.5, Member: "m"}).Result())
	})
}

func sortNumbers(all []string) {
	number := func(at int) int { return must(strconv.Atoi(all[at])) }
	sort.Slice(all, func(one, other int) bool { return number(one) < number(other) })
}

func checkStream() {
	must(client.XGroupCreateMkStream(background, "stream", "group", "0").Result())
	for number := range count {
		entry := redis.XAddArgs{Stream: "stream", Values: []any{"number", number}}
		must(client.XAdd(background, &entry).Result())
	}
	var lock sync.Mutex
	var found []string
	isDone := func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(found) >= count
	}
	consume := func(name string) {
		for !isDone() {
			read, err := client.XReadGroup(background, &redis.XReadGroupArgs{
				Group: "group", Consumer: name, Streams: []string{"stream", ">"},
				Count: 7, Block: 50 * time.Millisecond,
			}).Result()
			if err == redis.Nil {
				continue
			}
			for _, entry := range must(read, err)[0].Messages {
				number := entry.Values["number"].(string)
				lock.Lock()
				found = append(found, number)
				lock.Unlock()
				if !strings.HasSuffix(number, "0") {
					same(must(client.XAck(background, "stream", "group", entry.ID).Result()), 1)
				}
			}
		}
	}
	together(func() { consume("one") }, func() { consume("two") })
	sortNumbers(found)
	same(found, numbers(count, 0))
	left := (count + 9) / 10
	same(must(client.XPending(background, "stream", "group").Result()).Count, left)
	claimed, _, err := client.XAutoClaim(background, &redis.XAutoClaimArgs{
		Stream: "stream", Group: "group", Consumer: "three", Start: "0", Count: int64(count),
	}).Result()
	same(len(must(claimed, err)), left)
	pending := must(client.XPending(background, "stream", "group").Result())
	same(pending.Consumers, map[string]int64{"three": int64(left)})
}

func checkExpiry() {
	must(client.Set(background, "soon", 1, 50*time.Millisecond).Result())
	must(client.Set(background, "later", 1, 1000*time.Second).Result())
	must(client.HSet(background, "hash", "soon", 1, "later", 1).Result())
	expires := client.HPExpire(background, "hash", 50*time.Millisecond, "soon")
	same(must(expires.Result()), []int{1})
	left := must(client.TTL(background, "later").Result())
	same(left > 990*time.Second && left <= 1000*time.Second, true)
	same(must(client.GetEx(background, "later", 0).Result()), "1")
	same(must(client.TTL(background, "later").Result()), time.Duration(-1))
	until(func() bool {
		fields := must(client.HLen(background, "hash").Result())
		return must(client.Exists(background, "soon").Result())+fields == 1
	})
	same(must(client.HGetAll(background, "hash").Result()), map[string]string{"later": "1"})
	same(must(client.TTL(background, "soon").Result()), time.Duration(-2))
}

// Writers, a consumer and a subscriber while the server is killed and started again.

const luaPair = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1]) return 1"

var pair = redis.NewScript(luaPair)

func keysOf(kind string, n int) []string {
	return []string{fmt.Sprintf("%s:%d:a", kind, n), fmt.Sprintf("%s:%d:b", kind, n)}
}

var writes = map[string]func(keys []string, n int) error{
	"key": func(keys []string, n int) error {
		if err := client.Set(background, keys[0], n, 0).Err(); err != nil {
			return err
		}
		return client.Set(background, keys[1], n, 0).Err()
	},
	"pipeline": func(keys []string, n int) error {
		_, err := client.Pipelined(background, func(pipeline redis.Pipeliner) error {
			pipeline.Set(background, keys[0], n, 0)
			pipeline.Set(background, keys[1], n, 0)
			return nil
		})
		return err
	},
	"pair": func(keys []string, n int) error {
		_, err := client.TxPipelined(background, func(pipeline redis.Pipeliner) error {
			pipeline.Set(background, keys[0], n, 0)
			pipeline.Set(background, keys[1], n, 0)
			return nil
		})
		return err
	},
	"script": func(keys []string, n int) error {
		return pair.Run(background, client, keys, n).Err()
	},
	"entry": func(_ []string, n int) error {
		entry := redis.XAddArgs{Stream: "entries", Values: []any{"n", n}}
		return client.XAdd(background, &entry).Err()
	},
}

// A writer's attempts, and those that were acknowledged.
type writer struct {
	attempts     int
	acknowledged []int
	count        atomic.Int64
}

var (
	writers = map[string]*writer{}
	isBack  atomic.Bool
	taken   atomic.Value
	heard   atomic.Value
)

func (of *writer) write(kind string) {
	for left := count; left > 0; {
		of.attempts++
		err := writes[kind](keysOf(kind, of.attempts), of.attempts)
		var reply redis.Error
		if err != nil {
			// Only the loss of a connection is expected: an error of the server is none.
			if errors.As(err, &reply) {
				panic(err)
			}
			time.Sleep(10 * time.Millisecond)
			continue
		}
		of.acknowledged = append(of.acknowledged, of.attempts)
		of.count.Add(1)
		if isBack.Load() {
			left--
		}
	}
}

func killServer() {
	func() {
		defer isBack.Store(true)
		for _, of := range writers {
			until(func() bool { return of.count.Load() >= int64(count) })
		}
		must(exec.Command(kill[0], kill[1:]...).Output())
	}()
	until(func() bool { return client.RPush(background, "queue", "after").Err() == nil })
	until(func() bool {
		client.Publish(background, "news", "after")
		return heard.Load() != nil
	})
}

func consume() {
	until(func() bool {
		found, err := client.BLPop(background, 5*time.Second, "queue").Result()
		if err == nil {
			taken.Store(found[1])
		}
		return err == nil
	})
}

// listen subscribes once: the client subscribes again by itself.
func listen() {
	listener := client.Subscribe(background, "news")
	defer listener.Close()
	select {
	case message := <-listener.Channel():
		heard.Store(message.Payload)
	case <-time.After(patience):
	}
}

func checkKill() {
	jobs := []func(){killServer, consume, listen}
	for kind := range writes {
		of := &writer{}
		writers[kind] = of
		jobs = append(jobs, func() { of.write(kind) })
	}
	together(jobs...)
}

func checkKeeps() {
	entries := map[string]bool{}
	for _, entry := range must(client.XRange(background, "entries", "-", "+").Result()) {
		entries[entry.Values["n"].(string)] = true
	}
	for kind, of := range writers {
		same(len(of.acknowledged) >= 2*count, true)
		for _, n := range of.acknowledged {
			if kind == "entry" {
				same(entries[strconv.Itoa(n)], true)
				continue
			}
			same(must(client.MGet(background, keysOf(kind, n)...).Result()), []int{n, n})
		}
	}
}

func checkWholes() {
	for _, kind := range []string{"pair", "script"} {
		for n := 1; n <= writers[kind].attempts; n++ {
			found := must(client.MGet(background, keysOf(kind, n)...).Result())
			same(found[0], found[1])
		}
	}
}

func run(name string, check func()) {
	defer func() {
		if failure := recover(); failure != nil {
			fmt.Printf("failed %s: %.300v\n", name, failure)
			return
		}
		fmt.Println("passed", name)
	}()
	if !strings.HasPrefix(name, "kill ") {
		must(client.FlushAll(background).Result())
	}
	check()
}

func main() {
	count = must(strconv.Atoi(os.Args[2]))
	kill = os.Args[3:]
	client = redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], PoolSize: 12})
	defer client.Close()
	run("pool", checkPool)
	run("pipeline", checkPipeline)
	run("transaction", checkTransaction)
	run("watch", checkWatch)
	run("messages", checkMessages)
	run("scripts", checkScripts)
	run("blocking", checkBlocking)
	run("stream", checkStream)
	run("expiry", checkExpiry)
	run("kill", checkKill)
	run("kill keeps acknowledged", checkKeeps)
	run("kill leaves wholes", checkWholes)
	run("kill and a blocked consumer", func() { same(taken.Load(), "after") })
	run("kill and a subscriber", func() { same(heard.Load(), "after") })
}
