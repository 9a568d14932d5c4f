package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/internal/atomicfile"
	"glimpse/internal/listing"
	"glimpse/internal/tables"
	"glimpse/jobs"
	"glimpse/training"
)

// Grid is the grid of a sweep. An axis that is left out has the one value of the
// configuration's adapter.
type Grid struct {
	Rows         []int        `json:"rows,omitempty"`
	Modules      []ModuleList `json:"modules,omitempty"`
	LearningRate []float64    `json:"learning_rate,omitempty"`
	PerPass      int          `json:"per_pass"` // adapters trained together; 0 is 8
}

// Row is one point of the grid with what came of it.
type Row struct {
	Name         string             `json:"name"`
	Rows         int                `json:"rows"`
	Modules      string             `json:"modules"`
	LearningRate float64            `json:"learning_rate"`
	Parameters   int                `json:"parameters"`
	Folder       string             `json:"folder"`
	Metrics      map[string]float64 `json:"metrics"`
}

// maxGrid bounds a sweep: each point is an adapter that is trained.
const maxGrid = 10_000

// grid is the adapters of a sweep.
func (s *Spec) grid() ([]Adapter, error) {
	g := s.Sweep
	if g == nil {
		return nil, errors.New("sweep: missing, want a mapping of rows, modules and learning_rate")
	}
	if err := cmp.Or(
		jobs.Refuse(len(s.Adapters) != 1, "sweep: got %d adapters, want one that the grid varies", len(s.Adapters)),
		jobs.Refuse(s.RunDir == "", "sweep: run is missing, want a folder for the adapters and the table"),
		jobs.Refuse(s.Train.Validation.Samples == 0, "sweep: validation of 0 samples, want some to compare the adapters on"),
		jobs.Refuse(g.PerPass < 0, "sweep: per_pass: got %d, want at least 1", g.PerPass),
	); err != nil {
		return nil, err
	}
	base := s.Adapters[0]
	rows, modules, rates := g.Rows, g.Modules, g.LearningRate
	if len(rows) == 0 {
		rows = []int{base.Rows}
	}
	if len(modules) == 0 {
		modules = []ModuleList{base.Modules}
	}
	if len(rates) == 0 {
		rates = []float64{base.LearningRate}
	}
	if n := len(rows) * len(modules) * len(rates); n > maxGrid {
		return nil, fmt.Errorf("sweep: a grid of %d points, want at most %d", n, maxGrid)
	}
	if err := training.CheckName(base.name()); err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	var out []Adapter
	names := make(map[string]bool)
	for _, n := range rows {
		for _, m := range modules {
			for _, rate := range rates {
				a := base
				a.Rows, a.Modules, a.LearningRate, a.Out = n, m, rate, ""
				a.Name = fmt.Sprintf("%s-n%d-%s-lr%g", base.name(), n, m.String(), rate)
				if names[a.Name] {
					return nil, fmt.Errorf("sweep: %s twice, want different points", a.Name)
				}
				names[a.Name] = true
				out = append(out, a)
			}
		}
	}
	return out, nil
}

// RunSweep trains the grid, pass by pass. Of several ranks, rank 0 alone has rows.
func (s *Spec) RunSweep(ctx context.Context, log io.Writer) (rows []Row, err error) {
	err = s.onRanks(ctx, log, func(ctx context.Context) error {
		rows, err = s.runSweep(ctx, log)
		return err
	})
	return rows, err
}

// passes are the runs of a sweep, one after the other.
func (s *Spec) passes() ([]*Spec, error) {
	grid, err := s.grid()
	if err != nil {
		return nil, err
	}
	var passes []*Spec
	for adapters := range slices.Chunk(grid, cmp.Or(s.Sweep.PerPass, 8)) {
		run := *s
		run.Sweep, run.Checkpoint, run.Log = nil, "", ""
		run.Adapters = adapters
		run.RunDir = filepath.Join(s.RunDir, fmt.Sprintf("pass-%d", len(passes)+1))
		run.Outs = nil
		for _, a := range run.Adapters {
			run.Outs = append(run.Outs, filepath.Join(run.RunDir, "adapters", a.Name))
		}
		passes = append(passes, &run)
	}
	return passes, nil
}

func (s *Spec) runSweep(ctx context.Context, log io.Writer) ([]Row, error) {
	passes, err := s.passes()
	if err != nil {
		return nil, err
	}
	var rows []Row
	for pass, run := range passes {
		if s.Writes() {
			fmt.Fprintf(log, "pass %d of %d: %d adapters\n", pass+1, len(passes), len(run.Adapters))
		}
		if err := run.runRanks(ctx, log, log); err != nil {
			return nil, err
		}
		if !s.Writes() {
			continue
		}
		for i, a := range run.Adapters {
			rows = append(rows, Row{a.Name, a.Rows, a.Modules.String(), a.LearningRate, run.sizes[i], run.Outs[i], run.metrics[i]})
		}
	}
	if !s.Writes() {
		return nil, nil
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Compare(a.Metrics["validation_loss"], b.Metrics["validation_loss"])
	})
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return nil, err
	}
	return rows, atomicfile.WriteFile(filepath.Join(s.RunDir, checkpoints.SweepFile), append(text, '\n'))
}

// WriteRows prints what a sweep came to as a table for people.
func WriteRows(w io.Writer, rows []Row, budgets eviction.Budgets) error {
	value := func(m map[string]float64, key string) training.Number {
		if v, ok := m[key]; ok {
			return training.Number(v)
		}
		return training.Number(math.NaN())
	}
	numbers := func(m map[string]float64, key string) []training.Number {
		return listing.Map(budgets, func(b eviction.Budget) training.Number { return value(m, fmt.Sprintf("%s_%v", key, b)) })
	}
	var lines []training.QualityLine
	for _, r := range rows {
		lines = append(lines, training.QualityLine{
			Before: []string{fmt.Sprint(r.Rows), r.Modules, fmt.Sprintf("%g", r.LearningRate), fmt.Sprint(r.Parameters), fmt.Sprintf("%.4g", r.Metrics["validation_loss"])},
			Hits:   numbers(r.Metrics, "hit_rate"), Recall: numbers(r.Metrics, "recall"), Tau: value(r.Metrics, "kendall_tau"),
		})
	}
	lines = append(lines, training.QualityLine{
		Before: []string{"", "SnapKV", "", "", ""}, Hits: numbers(rows[0].Metrics, "snapkv_hit_rate"), Recall: numbers(nil, ""), Tau: value(nil, ""),
	})
	return training.WriteQuality(w, []tables.Column{
		{Head: "rows", Right: true}, {Head: "modules", Right: true}, {Head: "learning rate", Right: true},
		{Head: "parameters", Right: true, Optional: 1}, {Head: "held-out loss", Right: true},
	}, nil, budgets, lines)
}
