package training

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Write prints a plan of a configuration for people.
func (p *Plan) Write(w io.Writer, c *Config) error {
	fmt.Fprintf(w, "on this machine %s; on one H100 about %s (computed)\n", span(p.Time.TotalSeconds), span(p.H100.TotalSeconds))
	fmt.Fprintf(w, "H100: %s\n", p.H100.Assumed())
	if !p.H100.Fits {
		fmt.Fprintf(w, "H100: its 80 GB do not hold the %.0f GB that the run needs\n", float64(p.H100.Memory)/1e9)
	}
	if !p.Fits() {
		fmt.Fprintf(w, "does not fit: %s are needed, %s are available\n", size(p.Memory.Total), size(p.Available))
		if p.Memory.Weights > p.Available {
			fmt.Fprintf(w, "its weights alone take %s: no setting changes that\n", size(p.Memory.Weights))
		}
	}
	fmt.Fprintf(w, "\n%s, prompts of up to %d and responses of up to %d tokens, %d at a time\n\n", p.Model, p.Prompt, p.Response, p.Workers)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "adapter\tkind\tparameters\tof the model")
	for _, a := range p.Adapters {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f%%\n", a.Name, a.Kind, millions(a.Parameters), 100*a.Share)
	}
	fmt.Fprintln(t)
	k := p.Memory
	for _, row := range []struct {
		name  string
		bytes int64
	}{
		{"program", k.Process}, {"weights", k.Weights}, {"caches and targets", k.Cache}, {"activations", k.Activations}, {"adapters", k.Adapters},
		{"gradients and moments", k.Optimiser}, {"kept samples", k.Samples}, {"validation", k.Validation}, {"drawn curves", k.Drawing}, {"garbage", k.Collector}, {"memory in all", k.Total},
	} {
		fmt.Fprintf(t, "%s\t%.1f MiB\n", row.name, mib(row.bytes))
	}
	fmt.Fprintln(t)
	fmt.Fprintf(t, "a step of %d samples\t%s\n", c.Batch, seconds(p.Time.StepSeconds))
	fmt.Fprintf(t, "%d steps\t%s\n", c.Steps, span(p.Time.TotalSeconds))
	fmt.Fprintf(t, "measured speed\t%.1f GFLOP/s\n", p.Time.GFLOPS)
	if len(p.Changes) > 0 {
		fmt.Fprintln(t, "\nwhat to change, each alone\ttime\tmemory")
	}
	for _, x := range p.Changes {
		fmt.Fprintf(t, "%s\t%s\t%s\n", x.Change, span(x.TotalSeconds), size(x.Memory))
	}
	return t.Flush()
}

func millions(n int64) string {
	if n < 1e5 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}

func seconds(s float64) string {
	if s >= 3600 {
		return span(s)
	}
	d := time.Duration(s * float64(time.Second))
	if s < 10 {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// span is how long a run takes, for people.
func span(s float64) string {
	const hour, day, year = 3600.0, 24 * 3600.0, 365.25 * 24 * 3600
	switch {
	case s >= year:
		return fmt.Sprintf("%.1f years", s/year)
	case s >= 2*day:
		return fmt.Sprintf("%.1f days", s/day)
	case s >= 2*hour:
		return fmt.Sprintf("%.1f hours", s/hour)
	case s >= 120:
		return fmt.Sprintf("%.0f minutes", s/60)
	}
	return fmt.Sprintf("%.3g seconds", s)
}

// size is an amount of memory, for people.
func size(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", mib(n))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func mib(b int64) float64 { return float64(b) / (1 << 20) }
