// Checks histories of single objects for linearizability with Porcupine.
//
//	linearizability FILE...      each line of a file is one operation, as JSON
//
// Says how many objects and operations it checked; exit code 1 if a history is not linearizable or cannot be decided.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Every write of a history writes a token of so many bytes that no other one writes.
const token = 16

// How long one object's history may take; histories are kept short, so that it takes milliseconds.
const patience = 60 * time.Second

// Op is a line of a history. Times are of one clock for all clients.
type Op struct {
	Object string `json:"object"`
	Client int    `json:"client"`
	// read, write (the whole object), append, remove, swap: write the whole object if it begins with Expect, or exchange: write
	// the whole object if it is there, and return how it began.
	Op     string `json:"op"`
	Arg    string `json:"arg"`
	Expect string `json:"expect"`
	Call   int64  `json:"call"`
	// Missing if no answer came: it may have happened at any time since, or never.
	Return *int64 `json:"return"`
	// ok, absent (ENOENT) or differs (of a swap).
	Result string `json:"result"`
	// What a read or an exchange returned.
	Value string `json:"value"`
}

type answer struct {
	known  bool
	result string
	value  string
}

// An object that is not there is "-": contents are whole tokens, so no object holds that.
const absent = "-"

var object = porcupine.Model{
	Init: func() interface{} { return absent },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		ok, next := step(state.(string), input.(Op), output.(answer))
		return ok, next
	},
	DescribeOperation: func(input, output interface{}) string {
		op, out := input.(Op), output.(answer)
		result := "no answer"
		if out.known {
			result = out.result
		}
		return strings.TrimSpace(fmt.Sprintf("%s %s %s: %s %s", op.Op, op.Expect, op.Arg, result, out.value))
	},
	DescribeState: func(state interface{}) string { return state.(string) },
}

// What an object is after an operation, and whether it may have answered that.
func step(now string, op Op, out answer) (bool, string) {
	there := now != absent
	says := func(result string) bool { return !out.known || out.result == result }
	switch op.Op {
	case "read":
		if !out.known {
			return true, now
		}
		if !there {
			return says("absent"), now
		}
		return says("ok") && out.value == now, now
	case "write":
		return says("ok"), op.Arg
	case "append":
		if !there {
			now = ""
		}
		return says("ok"), now + op.Arg
	case "remove":
		if !there {
			return says("absent"), now
		}
		return says("ok"), absent
	case "exchange":
		if !there {
			return says("absent"), now
		}
		return says("ok") && (!out.known || strings.HasPrefix(now, out.value) && len(out.value) == token), op.Arg
	case "swap":
		if there && strings.HasPrefix(now, op.Expect) {
			return says("ok"), op.Arg
		}
		return says("differs") || !there && says("absent"), now
	}
	return false, now
}

func main() {
	objects := map[string][]porcupine.Operation{}
	total, unanswered := 0, 0
	for _, path := range os.Args[1:] {
		for _, op := range load(path) {
			out := porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call, Output: answer{}, Return: math.MaxInt64}
			if op.Return != nil {
				out.Output, out.Return = answer{true, op.Result, op.Value}, *op.Return
			} else {
				unanswered++
			}
			objects[path+" "+op.Object] = append(objects[path+" "+op.Object], out)
			total++
		}
	}
	bad := check(objects)
	fmt.Printf("%d operations on %d objects, %d without an answer: %d histories are not linearizable\n", total, len(objects), unanswered, bad)
	if bad > 0 || total == 0 {
		os.Exit(1)
	}
}

func load(path string) []Op {
	file, err := os.Open(path)
	if err != nil {
		fail(err)
	}
	defer file.Close()
	var ops []Op
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var op Op
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			fail(fmt.Errorf("%s: %v: %s", path, err, lines.Text()))
		}
		if len(op.Arg)%token != 0 || len(op.Expect)%token != 0 || op.Op != "read" && op.Op != "remove" && len(op.Arg) != token {
			fail(fmt.Errorf("%s: not a token: %s", path, lines.Text()))
		}
		ops = append(ops, op)
	}
	if err := lines.Err(); err != nil {
		fail(err)
	}
	return ops
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

// Checks every object's history, as many at once as there are cores; returns how many are wrong.
func check(objects map[string][]porcupine.Operation) int {
	var names []string
	for name := range objects {
		names = append(names, name)
	}
	sort.Strings(names)
	var wait sync.WaitGroup
	var lock sync.Mutex
	bad, places := 0, make(chan struct{}, runtime.NumCPU())
	for _, name := range names {
		wait.Add(1)
		places <- struct{}{}
		go func(name string) {
			defer wait.Done()
			result, info := porcupine.CheckOperationsVerbose(object, objects[name], patience)
			<-places
			if result == porcupine.Ok {
				return
			}
			lock.Lock()
			defer lock.Unlock()
			bad++
			tell(name, result, info, objects[name])
		}(name)
	}
	wait.Wait()
	return bad
}

// Prints a history that is wrong, and draws it.
func tell(name string, result porcupine.CheckResult, info porcupine.LinearizationInfo, ops []porcupine.Operation) {
	fmt.Printf("%s: %s\n", name, map[porcupine.CheckResult]string{porcupine.Illegal: "NOT LINEARIZABLE", porcupine.Unknown: "cannot be decided in time"}[result])
	sort.Slice(ops, func(a, b int) bool { return ops[a].Call < ops[b].Call })
	for _, op := range ops {
		end := "..."
		if op.Return != math.MaxInt64 {
			end = fmt.Sprint(op.Return)
		}
		fmt.Printf("  client %d, %d to %s: %s\n", op.ClientId, op.Call, end, object.DescribeOperation(op.Input, op.Output))
	}
	file := strings.Map(func(c rune) rune {
		if c == '/' || c == ' ' {
			return '_'
		}
		return c
	}, name)
	if path := os.TempDir() + "/linearizability" + file + ".html"; porcupine.VisualizePath(object, info, path) == nil {
		fmt.Println("  drawn in", path)
	}
}
