package jinja

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// Limits of a template and of a rendering.
const (
	maxSource    = 128 << 10 // bytes; the longest in use have about 40 KB
	maxDepth     = 64        // of nested blocks, brackets and conditions
	maxOperators = 1000      // in one tag
	maxCalls     = 100       // of macros in each other
	maxNesting   = 200       // of lists and dicts in each other
	maxRange     = 100_000   // elements of range(), as in Jinja's sandbox
	maxDigits    = 4300      // of an integer, as in Python

	// Every operation of a rendering is paid for out of one budget, by the bytes it
	// writes or reads; what it keeps can so never be more than was paid for.
	baseBudget  = 32 << 20
	inputBudget = 512 // more for each byte of the conversation
	mostBudget  = 4 << 30

	nodeCost = 32 // of evaluating one node of the tree
	itemCost = 64 // of one element of a list, or one pass of a loop
	callCost = 256
	charCost = 48 // of changing one byte of text that is not ASCII
	scanRate = 4  // bytes that are read for the price of one written
)

// run is one rendering. Its first error ends it: operations after that give any value,
// which nobody sees, and take no more of the budget.
type run struct {
	ctx   context.Context
	err   error
	left  int64
	check int64 // when left falls below, ctx is asked
	calls int   // macros in each other
	out   *strings.Builder
}

// checkEvery is how much is spent between two looks at the context.
const checkEvery = 1 << 20

func newRun(ctx context.Context) *run {
	return &run{ctx: ctx, left: baseBudget, check: baseBudget, out: new(strings.Builder)}
}

// grow adds to the budget what a conversation of so many bytes is given.
func (r *run) grow(input int64) {
	r.left = min(r.left+min(input, mostBudget/inputBudget)*inputBudget, mostBudget)
	r.check = r.left
}

// failWith ends the rendering with an error. What failed has the value None.
func (r *run) failWith(format string, args ...any) value {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	return nil
}

// charge pays for n bytes and tells whether the rendering goes on.
func (r *run) charge(n int) bool {
	switch {
	case r.err != nil:
	case n < 0 || int64(n) > r.left:
		r.err = ErrBudget
	default:
		r.left -= int64(n)
		if r.left <= r.check {
			r.check = r.left - checkEvery
			r.err = r.ctx.Err()
		}
	}
	return r.err == nil
}

// scan pays for reading n bytes.
func (r *run) scan(n int) bool { return r.charge(n/scanRate + 1) }

// chargeItems pays for n elements.
func (r *run) chargeItems(n int) bool { return r.charge(product(n, itemCost)) }

// nested tells whether values may be nested so deep.
func (r *run) nested(depth int) bool {
	if depth > maxNesting {
		r.failWith("found lists and dicts nested more than %d deep", maxNesting)
	}
	return r.err == nil
}

// product of sizes; one that is too large is math.MaxInt.
func product(a, b int) int {
	if a <= 0 || b <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt {
		return math.MaxInt
	}
	return int(lo)
}

// write prints to the output, or to what captures it.
func (r *run) write(s string) {
	if r.charge(len(s)) {
		r.out.WriteString(s)
	}
}

// capture returns what f prints.
func (r *run) capture(f func()) string {
	outer := r.out
	defer func() { r.out = outer }()
	r.out = new(strings.Builder)
	f()
	return r.out.String()
}
