package runner_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestExactLogits: with Exact, logits of quantised weights are float64's but for what float32 rounds, for a prompt and for steps after it,
// where products that round are far off. GLIMPSE_GGUF names a file to measure beside those of the tests.
func TestExactLogits(t *testing.T) {
	files := []string{filepath.Join("..", "gguf", "testdata", "blocks.gguf")}
	if own := os.Getenv("GLIMPSE_GGUF"); own != "" {
		files = append(files, own)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			run := func(o model.Options) (m *model.Model, out []float32) {
				m, err := model.Open(file, o)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { m.Close() })
				tokens := modeltest.Tokens(m, 1, 36)
				out, cache := prefill(t, m, tokens[:32], 0)
				if cache.DType() != m.Backend.Compute() {
					t.Errorf("keys and values are %s, want %s", cache.DType(), m.Backend.Compute())
				}
				for _, id := range tokens[32:] {
					logits, err := runner.New(m).Step(t.Context(), cache, id, runner.Capture{}, nil)
					if err != nil {
						t.Fatal(err)
					}
					out = append(out, logits...)
				}
				return m, out
			}
			_, want := run(model.Options{Device: "reference64"})
			exact, got := run(model.Options{Device: "cpu", CacheDType: "auto", Exact: true})
			_, rounded := run(model.Options{Device: "cpu"})
			d, usual := offByDeviation(got, want), offByDeviation(rounded, want)
			t.Logf("%s: off by %.1e of the logits' deviation, usually by %.1e", kernels.DeviceOf(exact.Backend), d, usual)
			if !(d <= 1e-5) {
				t.Errorf("logits are off by %.1e of their deviation, want at most 1e-5", d)
			}
			if !(usual > 1e-4) {
				t.Errorf("products that round are off by %.1e: nothing is rounded", usual)
			}
		})
	}
}

// offByDeviation is the difference in root mean squares of the deviation of what is wanted.
func offByDeviation(got, want []float32) float64 {
	var off, sum, squares float64
	for i, w := range want {
		off, sum, squares = off+math.Pow(float64(got[i])-float64(w), 2), sum+float64(w), squares+float64(w)*float64(w)
	}
	n := float64(len(want))
	return math.Sqrt(off / (squares - sum*sum/n))
}

func TestExactRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		o    model.Options
		want string
	}{
		{"keys in bf16", model.Options{Exact: true, CacheDType: "bf16"}, `exact arithmetic: cache dtype: got "bf16", want auto or float32`},
		{"keys in blocks", model.Options{Exact: true, CacheDType: "q8_0"}, `got "q8_0", want auto or float32`},
	} {
		if _, err := model.Open("", c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}
