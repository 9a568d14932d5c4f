package training

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/internal/benchclock"
	"glimpse/internal/parallel"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// pytorch is lab/bench/bench_pytorch.py serving a model folder.
type pytorch struct {
	in  io.Writer
	out *bufio.Reader
}

// startPyTorch starts GLIMPSE_PYTORCH, a Python with PyTorch, on the folder
// GLIMPSE_PYTORCH_MODEL.
func startPyTorch(b *testing.B) (*pytorch, string) {
	python, folder := os.Getenv("GLIMPSE_PYTORCH"), os.Getenv("GLIMPSE_PYTORCH_MODEL")
	if python == "" || folder == "" {
		b.Skip("GLIMPSE_PYTORCH and GLIMPSE_PYTORCH_MODEL name no Python and no model; lab/bench/bench_pytorch.sh sets them")
	}
	cmd := exec.Command(python, "../lab/bench/bench_pytorch.py", "serve", folder)
	cmd.Env = append(os.Environ(), fmt.Sprintf("GLIMPSE_PEER_THREADS=%d", parallel.Threads()))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Errorf("%s: %v", python, err)
		}
	})
	p := &pytorch{in, bufio.NewReader(out)}
	var hello struct{ Version string }
	p.read(b, &hello)
	b.Logf("PyTorch %s, %d threads, level %s", hello.Version, parallel.Threads(), simd.Level())
	return p, folder
}

func (p *pytorch) read(b *testing.B, v any) {
	line, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	if err != nil {
		b.Fatalf("PyTorch: %v", err)
	}
}

// ask runs a request, of which dtype is "bf16" or "f32", and returns its seconds.
func (p *pytorch) ask(b *testing.B, request map[string]any) float64 {
	line, err := json.Marshal(request)
	if err != nil {
		b.Fatal(err)
	}
	fmt.Fprintln(p.in, string(line))
	var answer struct{ Seconds float64 }
	p.read(b, &answer)
	return answer.Seconds
}

// subject is the model and the sample of a folder that bench_pytorch.py made.
type subject struct {
	m                *model.Model
	adapter          model.RowsAdapter
	student          *student
	label            label
	prompt, response []int32
}

func openSubject(b *testing.B, folder string) *subject {
	m, err := model.Open(folder, model.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	f, err := checkpoints.OpenSafetensors(filepath.Join(folder, "sample.safetensors"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	read := func(name string) *kernels.Tensor {
		view, err := f.Tensor(name)
		if err != nil {
			b.Fatal(err)
		}
		t, err := kernels.FromBytes(view.DType, view.Data, view.Shape...)
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	s := &subject{m: m}
	a, c := lookahead(b, m)
	o, err := newObjective(m, a, &c, nil)
	if err != nil {
		b.Fatal(err)
	}
	s.label = o.label
	s.adapter = a
	for _, p := range a.Parameters() {
		kernels.Convert(p.Tensor, read(p.Name))
	}
	s.prompt, s.response = slices.Clone(read("prompt").I32()), slices.Clone(read("response").I32())
	if s.student, err = newStudent(m, a, o); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.student.graph.Close() })
	return s
}

func (s *subject) step(b *testing.B, r *runner.Runner) (loss float64) {
	p, err := prepareSample(context.Background(), r, Sample{Prompt: s.prompt, Response: s.response}, len(s.response), []label{s.label})
	if err != nil {
		b.Fatal(err)
	}
	if loss, err = s.student.runSample(s.student.sampleOf(s.m, p, s.prompt, 0)); err != nil {
		b.Fatal(err)
	}
	return loss
}

func (s *subject) prefill(b *testing.B, r *runner.Runner) (*kvcache.Cache, []float32) {
	cache := kvcache.New(s.m)
	logits, err := r.Prefill(context.Background(), cache, s.prompt, runner.PrefillOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return cache, logits
}

// BenchmarkAgainstPyTorch compares prefill, decoding and the LookaheadKV training
// step of a model of a billion parameters with PyTorch, in turn within one run:
// medians of both and of the ratios of neighbours, above 1 where this product is
// faster. PyTorch uses the type that is the faster one there. The step's gradients
// are compared with PyTorch's in float32.
func BenchmarkAgainstPyTorch(b *testing.B) {
	p, folder := startPyTorch(b)
	s := openSubject(b, folder)
	r := runner.New(s.m)
	const tokens = 32
	timed := func(f func()) float64 {
		start := benchclock.Now()
		f()
		return (benchclock.Now() - start).Seconds()
	}
	decode := func() float64 {
		cache, logits := s.prefill(b, r)
		token := argmax(logits)
		return timed(func() {
			for range tokens {
				logits, err := r.Step(context.Background(), cache, token, runner.Capture{}, nil)
				if err != nil {
					b.Fatal(err)
				}
				token = argmax(logits)
			}
		})
	}
	for _, c := range []struct {
		name    string
		ours    func() float64
		request map[string]any
	}{
		{"prefill", func() float64 { return timed(func() { s.prefill(b, r) }) }, map[string]any{"op": "prefill"}},
		{"decode", decode, map[string]any{"op": "decode", "tokens": tokens}},
		{"step/passes", func() float64 { return timed(func() { s.step(b, r) }) }, map[string]any{"op": "step", "way": "passes"}},
		{"step/shared", func() float64 { return timed(func() { s.step(b, r) }) }, map[string]any{"op": "step", "way": "shared"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			peer := func(dtype string) float64 {
				c.request["dtype"] = dtype
				return p.ask(b, c.request)
			}
			c.ours()
			peer("f32")
			slow := peer("f32")
			dtype := "bf16"
			peer(dtype)
			if peer(dtype) > slow {
				dtype = "f32"
				peer(dtype)
			}
			var ours, theirs, ratios []float64
			for b.Loop() {
				x, y := c.ours(), peer(dtype)
				ours, theirs, ratios = append(ours, x), append(theirs, y), append(ratios, y/x)
			}
			for _, x := range [][]float64{ours, theirs, ratios} {
				slices.Sort(x)
			}
			middle := len(ours) / 2
			b.Logf("PyTorch in %s", dtype)
			if c.name == "decode" {
				b.ReportMetric(tokens/ours[middle], "tokens/s")
				b.ReportMetric(tokens/theirs[middle], "PyTorch-tokens/s")
			} else {
				b.ReportMetric(ours[middle], "s")
				b.ReportMetric(theirs[middle], "PyTorch-s")
			}
			b.ReportMetric(ratios[middle], "PyTorch/ours")
		})
	}
	b.Run("gradients", func(b *testing.B) { s.compareGradients(b, p, r) })
}

func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// compareGradients reports the distance of gradients, as one vector, from PyTorch's in
// float32, relative to its length: of ours computed in float32 and at the level in
// use, and of PyTorch's in bfloat16. It fails if ours in float32 is not equal up to
// rounding, or ours at the level in use farther than PyTorch's in bfloat16.
func (s *subject) compareGradients(b *testing.B, p *pytorch, r *runner.Runner) {
	gradients := func(dtype string) *checkpoints.Safetensors {
		path := filepath.Join(b.TempDir(), dtype+".safetensors")
		p.ask(b, map[string]any{"op": "gradients", "dtype": dtype, "way": "passes", "file": path})
		f, err := checkpoints.OpenSafetensors(path)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { f.Close() })
		return f
	}
	read := func(f *checkpoints.Safetensors, name string) []float32 {
		view, err := f.Tensor(name)
		if err != nil {
			b.Fatal(err)
		}
		values := make([]float32, view.Len())
		if err := view.ReadF32(values); err != nil {
			b.Fatal(err)
		}
		return values
	}
	distance := func(got func(i int, name string) []float32, want *checkpoints.Safetensors) float64 {
		var diff, size float64
		for i, q := range s.adapter.Parameters() {
			x, y := got(i, q.Name), read(want, q.Name)
			if len(x) != len(y) {
				b.Fatalf("gradient of %s: %d elements, want %d", q.Name, len(x), len(y))
			}
			for j := range x {
				d := float64(x[j]) - float64(y[j])
				diff, size = diff+d*d, size+float64(y[j])*float64(y[j])
			}
		}
		return math.Sqrt(diff / size)
	}
	var rounding, level, exact float64
	for b.Loop() {
		want, half := gradients("f32"), gradients("bf16")
		ours := func(i int, _ string) []float32 {
			g, err := s.student.graph.Gradient(i)
			if err != nil {
				b.Fatal(err)
			}
			return g.F32()
		}
		s.step(b, r)
		level = distance(ours, want)
		name, _ := strings.CutSuffix(simd.Level(), "bf16")
		restore, err := simd.Use(name)
		if err != nil {
			b.Fatal(err)
		}
		loss := s.step(b, r)
		exact = distance(ours, want)
		restore()
		rounding = distance(func(_ int, name string) []float32 { return read(half, name) }, want)
		if w := float64(read(want, "loss")[0]); !(math.Abs(loss-w) <= 1e-4*w) {
			b.Errorf("loss %v, want %v as PyTorch has", loss, w)
		}
	}
	b.ReportMetric(exact, "float32-error")
	b.ReportMetric(level, "error")
	b.ReportMetric(rounding, "PyTorch-bf16-error")
	if !(exact <= 1e-3) {
		b.Errorf("gradients in float32: relative distance %.3g from PyTorch's, want at most 1e-3", exact)
	}
	if !(level <= max(rounding, 1e-3)) {
		b.Errorf("gradients at level %s: relative distance %.3g, want at most that of PyTorch in bfloat16, %.3g", simd.Level(), level, rounding)
	}
}
