package training

import (
	"fmt"
	"io"
	"time"

	"glimpse/engine/costmodel"
	"glimpse/internal/bytesize"
	"glimpse/internal/tables"
)

// Write prints a plan for people, of a configuration or the first one of a sweep.
func (p *RunPlan) Write(w io.Writer, c *Config) error {
	columns := tables.Columns(w)
	say := func(format string, a ...any) { fmt.Fprintln(w, tables.Wrap(fmt.Sprintf(format, a...), columns)) }
	say("on this machine %s; on one H100 about %s (computed)", span(p.Time.TotalSeconds), span(p.H100.TotalSeconds))
	if chip, err := costmodel.Chips.Lookup(h100Name); err == nil {
		say("H100: %v", chip)
	}
	if !p.H100.Fits {
		say("H100: its 80 GB do not hold the %.0f GB that the run needs", float64(p.H100.Memory)/1e9)
	}
	if !p.Fits() {
		say("does not fit: %s are needed, %s are available", bytesize.FormatMemory(p.Memory.Total), bytesize.FormatMemory(p.Available))
		if p.Memory.Weights > p.Available {
			say("its weights alone take %s: no setting changes that", bytesize.FormatMemory(p.Memory.Weights))
		}
	}
	fmt.Fprintln(w)
	say("%s, prompts of up to %d and responses of up to %d tokens, %d at a time", p.Model, p.Prompt, p.Response, p.Workers)
	steps := fmt.Sprintf("%d steps", c.Steps)
	if p.Passes > 1 {
		say("a sweep: %d adapters in %d passes, one after the other; memory and a step are those of the pass that needs most memory", len(p.Adapters), p.Passes)
		steps = fmt.Sprintf("%d passes of %s", p.Passes, steps)
	}
	fmt.Fprintln(w)
	adapters := tables.New(tables.Column{Head: "adapter", Wrap: true}, tables.Column{Head: "kind"}, tables.Column{Head: "parameters", Right: true}, tables.Column{Head: "of the model", Right: true})
	for _, a := range p.Adapters {
		adapters.Add(a.Name, a.Kind, millions(a.Parameters), fmt.Sprintf("%.2f%%", 100*a.Share))
	}
	memory := tables.New(tables.Column{Head: "memory"}, tables.Column{Right: true})
	k := p.Memory
	for _, row := range []struct {
		name  string
		bytes int64
	}{
		{"program", k.Process}, {"weights", k.Weights}, {"caches and targets", k.Cache}, {"activations", k.Activations}, {"adapters", k.Adapters},
		{"gradients and moments", k.Optimiser}, {"kept samples", k.Samples}, {"validation", k.Validation}, {"drawn curves", k.Drawing}, {"garbage", k.Collector}, {"in all", k.Total},
	} {
		memory.Add(row.name, bytesize.FormatMemory(row.bytes))
	}
	took := tables.New(tables.Column{Head: "time"}, tables.Column{Right: true})
	took.Add(fmt.Sprintf("a step of %d samples", c.Batch), seconds(p.Time.StepSeconds))
	took.Add(steps, span(p.Time.TotalSeconds))
	took.Add("measured speed", fmt.Sprintf("%.1f GFLOP/s", p.Time.GFLOPS))
	changes := tables.New(tables.Column{Head: "what to change, each alone", Wrap: true}, tables.Column{Head: "time", Right: true}, tables.Column{Head: "memory", Right: true})
	for _, x := range p.Changes {
		changes.Add(x.Change, span(x.TotalSeconds), bytesize.FormatMemory(x.Memory))
	}
	all := []*tables.Table{adapters, memory, took}
	if len(p.Changes) > 0 {
		all = append(all, changes)
	}
	for i, t := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := t.Write(w, columns); err != nil {
			return err
		}
	}
	return nil
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
