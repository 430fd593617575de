package main

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"
)

const a, b = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"

func op(call, end int64, what, arg, result, value string) porcupine.Operation {
	out := answer{true, result, value}
	if end == math.MaxInt64 {
		out = answer{}
	}
	return porcupine.Operation{Input: Op{Op: what, Arg: arg, Expect: a}, Call: call, Return: end, Output: out}
}

func TestHistories(t *testing.T) {
	open := int64(math.MaxInt64)
	cases := []struct {
		what string
		fits bool
		ops  []porcupine.Operation
	}{
		{"a read of what was written", true, []porcupine.Operation{op(1, 2, "write", a, "ok", ""), op(3, 4, "read", "", "ok", a)}},
		{"a lost write", false, []porcupine.Operation{op(1, 2, "write", a, "ok", ""), op(3, 4, "read", "", "absent", "")}},
		{"an old read", false, []porcupine.Operation{
			op(1, 2, "write", a, "ok", ""), op(3, 4, "write", b, "ok", ""), op(5, 6, "read", "", "ok", a)}},
		{"a write without an answer may have been", true, []porcupine.Operation{op(1, open, "write", a, "", ""), op(3, 4, "read", "", "ok", a)}},
		{"or not have been", true, []porcupine.Operation{op(1, open, "write", a, "", ""), op(3, 4, "read", "", "absent", "")}},
		{"but not be taken back", false, []porcupine.Operation{
			op(1, open, "write", a, "", ""), op(3, 4, "read", "", "ok", a), op(5, 6, "read", "", "absent", "")}},
		{"an append done twice", false, []porcupine.Operation{op(1, 2, "append", a, "ok", ""), op(3, 4, "read", "", "ok", a+a)}},
		{"an object removed twice", false, []porcupine.Operation{
			op(1, 2, "write", a, "ok", ""), op(3, 4, "remove", "", "ok", ""), op(5, 6, "remove", "", "ok", "")}},
		{"a swap of what is there", true, []porcupine.Operation{
			op(1, 2, "write", a, "ok", ""), op(3, 4, "swap", b, "ok", ""), op(5, 6, "read", "", "ok", b)}},
		{"two swaps of one content", false, []porcupine.Operation{
			op(1, 2, "write", a, "ok", ""), op(3, 9, "swap", b, "ok", ""), op(4, 8, "swap", b, "ok", "")}},
		{"an exchange returns what was there", true, []porcupine.Operation{
			op(1, 2, "write", a, "ok", ""), op(3, 4, "append", b, "ok", ""), op(5, 6, "exchange", b, "ok", a), op(7, 8, "read", "", "ok", b)}},
		{"and not what it wrote itself", false, []porcupine.Operation{
			op(1, 2, "write", a, "ok", ""), op(3, 4, "exchange", b, "ok", b)}},
		{"an exchange of nothing", false, []porcupine.Operation{op(1, 2, "exchange", b, "ok", "")}},
	}
	for _, c := range cases {
		if porcupine.CheckOperations(object, c.ops) != c.fits {
			t.Errorf("%s: wanted %v", c.what, c.fits)
		}
	}
}
