// Command llamacppbench measures prompts and decoding of GGUF files side by side with llama.cpp's
// llama-bench, in turns, and prints the median rates of both, and the median of the turns' ratios: where
// the memory of a machine changes its speed in between, both sides of a turn have the same.
//
// With -step both sides decode a few tokens at a time instead, by turns, so that hundreds of turns are
// minutes; what they differ by is then known to 1 or 2%. -other adds programs that were built of other commits:
//
//	g++ -O2 -I SRC/include -I SRC/ggml/include lab/bench/llamastep.cpp -L BUILD/bin -Wl,-rpath,BUILD/bin -lllama -lggml -lggml-base -lggml-cpu -o llamastep
//	llamacppbench -step ./llamastep -other old=./llamacppbench-before -rounds 40 FILE.gguf
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "glimpse/gates"
	"glimpse/internal/parallel"
	_ "glimpse/kernels/backends"
	_ "glimpse/lora"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
	_ "glimpse/softtokens"
)

var (
	bench    = flag.String("bench", "", "llama-bench")
	threads  = flag.Int("threads", 2, "threads of both")
	rounds   = flag.Int("rounds", 3, "turns, of which medians are taken")
	prompt   = flag.Int("prompt", 1024, "tokens of a prompt")
	depths   = flag.String("depths", "0,2048", "tokens before those that are decoded, comma-separated")
	caches   = flag.String("caches", "float32,bf16,q8_0", "types of the cache, comma-separated")
	decoded  = flag.Int("decoded", 64, "tokens that are decoded")
	step     = flag.String("step", "", "llamastep: decoding alone, by it and not by llama-bench")
	group    = flag.Int("group", 5, "tokens of a turn with -step")
	contexts = flag.String("contexts", "", "with -step: prompts of -depths and decoding behind them, of caches of llama.cpp, as f16,f16:plain,q8_0, and of policies, as bf16:snapkv:10%")
	others   []other
)

type other struct{ name, program string }

func main() {
	flag.Func("other", "NAME=PROGRAM: another build of this program that decodes as well with -step", func(text string) error {
		name, program, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("got %q, want NAME=PROGRAM", text)
		}
		others = append(others, other{name, program})
		return nil
	})
	flag.Parse()
	do := run
	switch {
	case flag.Arg(0) == "step":
		do = func() error { return serveSteps(flag.Args()[1:]) }
	case (*bench == "") == (*step == "") || flag.NArg() == 0:
		fmt.Fprintln(os.Stderr, "llamacppbench: want -bench LLAMA_BENCH or -step LLAMASTEP, and GGUF files")
		os.Exit(2)
	case *contexts != "":
		do = runContexts
	case *step != "":
		do = runSteps
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "llamacppbench:", err)
		os.Exit(1)
	}
}

// eachDepth calls f with all of -depths.
func eachDepth(f func(depth int) error) error {
	for _, text := range strings.Split(*depths, ",") {
		depth, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("-depths: %w", err)
		}
		if err := f(depth); err != nil {
			return err
		}
	}
	return nil
}

func run() error {
	parallel.SetThreads(*threads)
	fmt.Printf("%-40s %-8s %-14s %10s %10s %7s\n", "file", "cache", "what", "llama.cpp", "glimpse", "ratio")
	for _, path := range flag.Args() {
		for i, cache := range strings.Split(*caches, ",") {
			m, err := model.Open(path, model.Options{CacheDType: cache})
			if err != nil {
				return err
			}
			measure := func(what string, depth, tokens int, own func() (float64, error)) error {
				var theirs, ours, ratios []float64
				for range *rounds {
					x, err := llama(path, cache, what == "prompt", depth, tokens)
					if err != nil {
						return err
					}
					y, err := own()
					if err != nil {
						return err
					}
					theirs, ours, ratios = append(theirs, x), append(ours, y), append(ratios, y/x)
				}
				fmt.Printf("%-40s %-8s %-14s %10.1f %10.1f %7.2f\n", filepath.Base(path), cache, fmt.Sprintf("%s %d", what, max(depth, tokens*btoi(what == "prompt"))), median(theirs), median(ours), median(ratios))
				return nil
			}
			if i == 0 {
				if err := measure("prompt", 0, *prompt, func() (float64, error) { return prefill(m, *prompt) }); err != nil {
					return err
				}
			}
			if err := eachDepth(func(depth int) error {
				return measure("decode after", depth, *decoded, func() (float64, error) { return decode(m, depth, *decoded) })
			}); err != nil {
				return err
			}
			if err := m.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// llama is llama-bench's rate in tokens/s.
func llama(path, cache string, prompt bool, depth, tokens int) (float64, error) {
	if cache == "float32" {
		cache = "f16" // which is its default; it takes no float32
	}
	args := []string{"-m", path, "-t", strconv.Itoa(*threads), "-r", "1", "-o", "json", "-fa", "1", "-ctk", cache, "-ctv", cache, "-ngl", "0"}
	if prompt {
		args = append(args, "-p", strconv.Itoa(tokens), "-n", "0")
	} else {
		args = append(args, "-p", "0", "-n", strconv.Itoa(tokens), "-d", strconv.Itoa(depth))
	}
	out, err := exec.Command(*bench, args...).Output()
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", *bench, strings.Join(args, " "), err)
	}
	var results []struct {
		Rate float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out, &results); err != nil || len(results) != 1 {
		return 0, fmt.Errorf("%s: %d results, %w", *bench, len(results), err)
	}
	return results[0].Rate, nil
}

func tokensOf(m *model.Model, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((i*7919 + 13) % m.Config.Vocab)
	}
	return tokens
}

// prefill is the rate of a prompt, with one of the same length before it, as llama-bench warms up.
func prefill(m *model.Model, n int) (float64, error) {
	r := runner.New(m)
	var took time.Duration
	for range 2 {
		cache, begin := kvcache.New(m), time.Now()
		if _, err := r.Prefill(context.Background(), cache, tokensOf(m, n), runner.PrefillOptions{}); err != nil {
			return 0, err
		}
		took = time.Since(begin)
	}
	return float64(n) / took.Seconds(), nil
}

// decode is the rate of n tokens after so many.
func decode(m *model.Model, depth, n int) (float64, error) {
	r, cache := runner.New(m), kvcache.New(m)
	if _, err := r.Prefill(context.Background(), cache, tokensOf(m, max(1, depth)), runner.PrefillOptions{}); err != nil {
		return 0, err
	}
	step := func(token int32) error {
		_, err := r.Step(context.Background(), cache, token, runner.Capture{}, nil)
		return err
	}
	if err := step(5); err != nil {
		return 0, err
	}
	begin := time.Now()
	for i := range n {
		if err := step(int32(i % m.Config.Vocab)); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}
