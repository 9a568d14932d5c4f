package runs

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"glimpse/internal/simd"
)

// TestResultsNameTheirArithmetic: rows and the run's folder say what a model computed on, both kinds where a run goes on on
// another machine, which is told.
func TestResultsNameTheirArithmetic(t *testing.T) {
	usual := "cpu " + simd.Arithmetic(simd.Rounded)
	restore, err := simd.Use("portable")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := "cpu " + simd.Arithmetic(simd.Rounded)
	restore()
	if usual == elsewhere {
		t.Skip("this processor has one level")
	}
	for _, c := range []struct {
		name   string
		out    bool
		first  func(j *Job)
		level  string // of what goes on; "": nothing does
		device string
		log    string
	}{
		{name: "a run", out: true, device: usual},
		{name: "a run without a folder", device: usual},
		{name: "exact", out: true, first: func(j *Job) { j.Exact = true }, device: "cpu " + simd.Arithmetic(simd.Float32)},
		{name: "goes on on the same", out: true, level: simd.Level(), device: usual},
		{name: "goes on elsewhere", out: true, level: "portable", device: usual + ", " + elsewhere, log: "was on " + usual + " and goes on on " + elsewhere},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := ""
			if c.out {
				out = t.TempDir()
			}
			job := func(policies string) *Job {
				j := small(out)
				if j.Tasks, j.Samples, j.Policies = j.Tasks[:1], 1, (Names{policies}); c.first != nil {
					c.first(j)
				}
				return j
			}
			var log bytes.Buffer
			done, err := job("full").Run(context.Background(), &log)
			if err == nil && c.level != "" {
				restore, unknown := simd.Use(c.level)
				if unknown != nil {
					t.Fatal(unknown)
				}
				defer restore()
				j := job("snapkv")
				j.Resume = true
				done, err = j.Run(context.Background(), &log)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range done.Rows {
				if r.Device != c.device {
					t.Errorf("%s: device %q, want %q", r.Label(), r.Device, c.device)
				}
			}
			if got := log.String(); strings.Contains(got, "goes on on") != (c.log != "") || !strings.Contains(got, c.log) {
				t.Errorf("log %q, want %q", got, c.log)
			}
			if !c.out {
				return
			}
			for _, name := range []string{EnvironmentFile, MetricsFile} {
				if got := read(t, out, name); !strings.Contains(strings.ReplaceAll(got, `": "`, `":"`), `"device":"`+c.device+`"`) {
					t.Errorf("%s does not name %q: %s", name, c.device, got)
				}
			}
		})
	}
	a, b := &Environment{Models: []AboutModel{{Name: "m", Device: usual}}}, &Environment{Models: []AboutModel{{Name: "m", Device: elsewhere}}}
	if err := a.sameModels(b); err != nil || a.Models[0].Device != usual+", "+elsewhere {
		t.Errorf("shards of two machines: device %q, error %v", a.Models[0].Device, err)
	}
}

func TestExactRefusesRoundedCaches(t *testing.T) {
	j := small("")
	j.Exact, j.CacheDType = true, "q8_0"
	if _, err := j.Run(context.Background(), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), `exact arithmetic: cache dtype: got "q8_0"`) {
		t.Errorf("error %v", err)
	}
}
