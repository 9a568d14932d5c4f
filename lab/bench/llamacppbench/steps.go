package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/parallel"
	"glimpse/model/runner"
)

// stepper is a program that decodes as many tokens as it is asked for on its standard input, and prints the
// seconds they took. Before that it prints the seconds that the tokens before them took, and the most bytes that their cache had.
type stepper struct {
	name   string
	in     io.WriteCloser
	out    *bufio.Scanner
	run    *exec.Cmd
	prompt float64 // s
	bytes  int64
	took   []float64 // s of each turn
	ratio  []float64 // of the first one's time to this one's, by turns
}

func start(name, program string, args ...string) (*stepper, error) {
	c := exec.Command(program, args...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s := &stepper{name: name, in: in, out: bufio.NewScanner(out), run: c}
	if err := c.Start(); err != nil {
		return nil, err
	}
	if !s.out.Scan() {
		return nil, errors.Join(fmt.Errorf("%s ended before its prompt: %w", name, errors.Join(s.out.Err(), io.ErrUnexpectedEOF)), c.Wait())
	}
	_, err = fmt.Sscan(s.out.Text(), &s.prompt, &s.bytes)
	return s, err
}

// end ends the program and returns the most memory that it has had, in bytes.
func (s *stepper) end() (rss int64, err error) {
	s.in.Close()
	err = s.run.Wait()
	if u, ok := s.run.ProcessState.SysUsage().(*syscall.Rusage); ok {
		rss = u.Maxrss << 10
	}
	return rss, err
}

// ask has n tokens decoded and returns the seconds they took.
func (s *stepper) ask(n int) (float64, error) {
	if _, err := fmt.Fprintln(s.in, n); err != nil {
		return 0, fmt.Errorf("%s: %w", s.name, err)
	}
	if !s.out.Scan() {
		return 0, fmt.Errorf("%s ended before it had decoded: %w", s.name, errors.Join(s.out.Err(), io.ErrUnexpectedEOF))
	}
	return strconv.ParseFloat(s.out.Text(), 64)
}

func runSteps() error {
	for _, path := range flag.Args() {
		for _, cache := range strings.Split(*caches, ",") {
			if err := eachDepth(func(depth int) error { return compareSteps(path, cache, depth) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareSteps prints how fast llama.cpp, this program and others decode, group tokens at a time in turns, whose
// order changes. A ratio is to llama.cpp's rate, with the error of the median.
func compareSteps(path, cache string, depth int) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{path, cache, strconv.Itoa(*threads), strconv.Itoa(depth)}
	own := append([]string{"step"}, args...)
	all := make([]*stepper, 0, 2+len(others))
	defer func() {
		for _, s := range all {
			_, bad := s.end()
			err = errors.Join(err, bad)
		}
	}()
	add := func(name, program string, args []string) error {
		s, err := start(name, program, args...)
		if err == nil {
			all = append(all, s)
			_, err = s.ask(*group) // loads, and warms up
		}
		return err
	}
	if err := errors.Join(add("llama.cpp", *step, args), add("glimpse", self, own)); err != nil {
		return err
	}
	for _, o := range others {
		if err := add(o.name, o.program, own); err != nil {
			return err
		}
	}
	for range *rounds {
		for _, i := range rand.Perm(len(all)) {
			took, err := all[i].ask(*group)
			if err != nil {
				return err
			}
			all[i].took = append(all[i].took, took)
		}
	}
	for i, s := range all {
		for t, took := range s.took {
			s.ratio = append(s.ratio, all[0].took[t]/took)
		}
		fmt.Printf("%-40s %-8s %-14s %10s %10.2f", filepath.Base(path), cache, fmt.Sprintf("decode after %d", depth), s.name, float64(*group*len(s.took))/sum(s.took))
		if i > 0 {
			middle, spread := spreadOf(s.ratio)
			fmt.Printf(" %7.3f ± %.3f", middle, spread/math.Sqrt(float64(len(s.ratio))))
		}
		fmt.Println()
	}
	return nil
}

func sum(x []float64) (s float64) {
	for _, v := range x {
		s += v
	}
	return s
}

// spreadOf returns the median of x and the standard error of a median of one, from the median deviation.
func spreadOf(x []float64) (middle, spread float64) {
	middle = median(slices.Clone(x))
	away := make([]float64, len(x))
	for i, v := range x {
		away[i] = math.Abs(v - middle)
	}
	return middle, 1.2533 * 1.4826 * median(away)
}

// serveSteps is this program's side of a comparison: FILE CACHE THREADS DEPTH, as llamastep has them, and a policy with its budget and, where
// they are not equal, budgets of heads, as snapkv:10% or snapkv:10%:shipped.
func serveSteps(args []string) error {
	if len(args) != 4 && len(args) != 5 {
		return fmt.Errorf("step: got %d arguments, want FILE.gguf CACHE THREADS DEPTH [POLICY:BUDGET[:HEADS]]", len(args))
	}
	threads, err := strconv.Atoi(args[2])
	depth, err2 := strconv.Atoi(args[3])
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	parallel.SetThreads(threads)
	name, share, _ := strings.Cut(append(args, "full:100%")[4], ":")
	share, heads, _ := strings.Cut(share, ":")
	budget, err := eviction.ParseBudget(share)
	if err != nil {
		return err
	}
	ctx := context.Background()
	m, err := engine.Open(ctx, &engine.Options{Model: args[0], CacheDType: args[1], Policies: name, Heads: heads}, io.Discard)
	if err != nil {
		return err
	}
	defer m.Close()
	policy, err := m.FirstPolicy(name)
	if err != nil {
		return err
	}
	tokens := tokensOf(m.Model, max(1, depth))
	begin := time.Now()
	session, err := eviction.NewRuntime(m.Model).Prefill(ctx, policy.Configured, eviction.Prompt{Tokens: tokens, Budget: budget.Of(len(tokens)), MaxNew: 64})
	if err != nil {
		return err
	}
	fmt.Printf("%.9f %d\n", time.Since(begin).Seconds(), session.PeakBytes)
	r, cache := runner.New(m.Model), session.Cache
	start := cache.Next()
	for token, n := 0, 0; ; {
		if _, err := fmt.Scan(&n); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		begin := time.Now()
		for range n {
			token++
			if _, err := r.Step(ctx, cache, int32(token*7919%m.Config.Vocab), runner.Capture{}, nil); err != nil {
				return err
			}
		}
		fmt.Printf("%.9f\n", time.Since(begin).Seconds())
		if err := cache.Truncate(start); err != nil { // the next tokens come after as many as these
			return err
		}
	}
}
