package report

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/figures"
	"glimpse/internal/listing"
)

// NeedleCell is one measured cell of a needle-in-a-haystack test: how often one
// policy finds a needle at one depth of prompts of one length.
type NeedleCell struct {
	Policy   string  `json:"policy"`           // "lookaheadkv/shipped" with an adapter
	Budget   string  `json:"budget,omitempty"` // "" where there is only one
	Depth    float64 `json:"depth"`            // of the needle: 0 at the start of the prompt, 1 at its end
	Tokens   int     `json:"tokens"`           // prompt length
	Accuracy float64 `json:"accuracy"`         // mean score, 0–1
	Samples  int     `json:"samples"`
	Metric   string  `json:"metric,omitempty"` // of the score; "" is that of exact answers
}

// maxNeedleSteps bounds the lengths and the depths of a heat map.
const maxNeedleSteps = 128

// PlotNeedle writes a picture of heat maps, a panel per policy in order of appearance,
// with the prompt length from left to right, the needle's depth from top to bottom,
// and one colour bar for all. Where there are budgets, each policy has a row of panels and
// each budget a column, in order of appearance. Lengths and depths that occur in any cell are spaced
// evenly; a policy's cells that were not measured stay grey, which is said below the bar. Each panel's title gives
// the mean over its cells.
//
// No cells, repeated cells, values outside their range, more than 48 panels and more than
// 128 lengths or depths are errors.
func PlotNeedle(w io.Writer, format figures.Format, cells []NeedleCell) error {
	panels, err := panelsOf(cells)
	if err != nil {
		return fmt.Errorf("plot needle: %w", err)
	}
	tokens, depths := stepsOf(cells)
	return figures.WriteHeats(w, format, gridOf(panels, tokens, depths), scoreName(cells))
}

// gridOf puts panels in rows: of a policy each where there are budgets, which have a column
// each, and otherwise of three, or of two where there are four. Places may stay empty.
func gridOf(panels [][]NeedleCell, tokens []int, depths []float64) [][]*figures.Heat {
	var budgets, policies []string
	for _, p := range panels {
		if b := p[0].Budget; b != "" {
			budgets = listing.Union(budgets, b)
		}
		policies = listing.Union(policies, p[0].Policy)
	}
	columns := min(len(panels), 3)
	if len(panels) == 4 {
		columns = 2
	}
	if len(budgets) > 0 {
		columns = len(budgets)
	}
	var grid [][]*figures.Heat
	for i, p := range panels {
		row, column := i/columns, i%columns
		if len(budgets) > 0 {
			row, column = slices.Index(policies, p[0].Policy), max(0, slices.Index(budgets, p[0].Budget))
		}
		for len(grid) <= row {
			grid = append(grid, make([]*figures.Heat, columns))
		}
		h, mean := needleHeat(p, tokens, depths)
		h.Title = fmt.Sprintf("%s (mean %.0f%%)", p[0].policyName(), 100*mean)
		grid[row][column] = h
	}
	return grid
}

// scoreName is what the colour bar says.
func scoreName(cells []NeedleCell) string {
	metric := cells[0].Metric
	switch {
	case slices.ContainsFunc(cells, func(c NeedleCell) bool { return c.Metric != metric }):
		return "score (%)"
	case metric == "" || metric == evaluation.MetricExactAnswer:
		return "accuracy (%)"
	}
	return metric + " (%)"
}

// policyName is the policy with its budget.
func (c NeedleCell) policyName() string { return strings.TrimSpace(c.Policy + " " + c.Budget) }

// needleHeat is the map of one policy's cells, and their mean.
func needleHeat(cells []NeedleCell, tokens []int, depths []float64) (*figures.Heat, float64) {
	h := &figures.Heat{XLabel: "prompt tokens", YLabel: "depth of the needle (%)", X: listing.Map(tokens, thousands)}
	for _, d := range depths {
		h.Y = append(h.Y, fmt.Sprintf("%.3g", 100*d))
		h.Values = append(h.Values, slices.Repeat([]float64{math.NaN()}, len(tokens)))
	}
	sum := 0.0
	for _, c := range cells {
		row, column := placeOf(c, tokens, depths)
		h.Values[row][column] = c.Accuracy
		sum += c.Accuracy
	}
	return h, sum / float64(len(cells))
}

// stepsOf are the lengths and the depths of cells, rising.
func stepsOf(cells []NeedleCell) (tokens []int, depths []float64) {
	for _, c := range cells {
		tokens, depths = append(tokens, c.Tokens), append(depths, c.Depth)
	}
	slices.Sort(tokens)
	slices.Sort(depths)
	return slices.Compact(tokens), slices.Compact(depths)
}

// placeOf is a cell's row and column in a map.
func placeOf(c NeedleCell, tokens []int, depths []float64) (row, column int) {
	row, _ = slices.BinarySearch(depths, c.Depth)
	column, _ = slices.BinarySearch(tokens, c.Tokens)
	return row, column
}

// thousands shortens whole multiples of 1024 to "4k".
func thousands(n int) string {
	if n%1024 == 0 {
		return fmt.Sprintf("%dk", n/1024)
	}
	return fmt.Sprint(n)
}

// panelsOf are the cells of each policy at each budget.
func panelsOf(cells []NeedleCell) ([][]NeedleCell, error) {
	if len(cells) == 0 {
		return nil, errors.New("no cells")
	}
	seen := make(map[NeedleCell]bool)
	for i, c := range cells {
		if err := c.validate(); err != nil {
			return nil, fmt.Errorf("cell %d (%.200q, %d tokens, depth %v): %w", i, c.Policy, c.Tokens, c.Depth, err)
		}
		place := NeedleCell{Policy: c.Policy, Budget: c.Budget, Depth: c.Depth, Tokens: c.Tokens}
		if seen[place] {
			return nil, fmt.Errorf("cell %d: a second one of %s at %d tokens, depth %v", i, c.policyName(), c.Tokens, c.Depth)
		}
		seen[place] = true
	}
	if tokens, depths := stepsOf(cells); len(tokens) > maxNeedleSteps || len(depths) > maxNeedleSteps {
		return nil, fmt.Errorf("%d prompt lengths and %d depths, want at most %d of each", len(tokens), len(depths), maxNeedleSteps)
	}
	panels := listing.Group(cells, func(c NeedleCell) [2]string { return [2]string{c.Policy, c.Budget} })
	if len(panels) > maxPanels {
		return nil, fmt.Errorf("more than %d policies at each budget", maxPanels)
	}
	return panels, nil
}

func (c NeedleCell) validate() error {
	switch {
	case !evaluation.IsName(c.Policy):
		return fmt.Errorf("policy: got %.200q, want %s", c.Policy, evaluation.WantName)
	case c.Budget != "" && !evaluation.IsName(c.Budget):
		return fmt.Errorf("budget: got %.200q, want %s", c.Budget, evaluation.WantName)
	case !(c.Depth >= 0 && c.Depth <= 1):
		return fmt.Errorf("depth: got %v, want a share in [0, 1]", c.Depth)
	case c.Tokens < 1:
		return fmt.Errorf("tokens: got %d, want ≥ 1", c.Tokens)
	case !(c.Accuracy >= 0 && c.Accuracy <= 1):
		return fmt.Errorf("accuracy: got %v, want a share in [0, 1]", c.Accuracy)
	case c.Samples < 1:
		return fmt.Errorf("samples: got %d, want ≥ 1", c.Samples)
	}
	return nil
}

// NeedleMap are the heat maps of one model and task at one budget: a cell for every policy,
// prompt length and depth. Those of the full cache are in the maps of every budget.
type NeedleMap struct {
	Model, Task string
	Budget      eviction.Budget
	Cells       []NeedleCell
}

// NeedleMaps are the heat maps that rows grouped by length and depth make, in the order in
// which models and tasks appear, budgets rising.
func NeedleMaps(rows []evaluation.Row) (out []NeedleMap) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r evaluation.Row) bool { _, ok := needleCell(r); return !ok })
	for _, task := range listing.Group(rows, func(r evaluation.Row) [2]string { return [2]string{r.Model, r.Task} }) {
		budgets := listing.Group(task, func(r evaluation.Row) eviction.Budget { return r.Budget })
		slices.SortFunc(budgets, func(a, b []evaluation.Row) int { return a[0].Budget.Compare(b[0].Budget) })
		var full []NeedleCell
		for _, own := range budgets {
			m := NeedleMap{Model: own[0].Model, Task: own[0].Task, Budget: own[0].Budget, Cells: slices.Clone(full)}
			for _, r := range own {
				c, _ := needleCell(r)
				m.Cells = append(m.Cells, c)
			}
			if m.Budget.IsZero() && len(budgets) > 1 { // the first
				full = m.Cells
				continue
			}
			out = append(out, m)
		}
	}
	return out
}

// NeedleCells are the cells of all maps for one picture. A cell's policy has the model and
// the task beside it where there are several, and its budget where there are several of
// these; a cell of the full cache has none.
func NeedleCells(maps []NeedleMap) []NeedleCell {
	models, tasks, budgets := make(map[string]bool), make(map[string]bool), make(map[eviction.Budget]bool)
	for _, m := range maps {
		models[m.Model], tasks[m.Task], budgets[m.Budget] = true, true, true
	}
	var out []NeedleCell
	seen := make(map[NeedleCell]bool)
	for _, m := range maps {
		var beside []string
		if len(models) > 1 {
			beside = append(beside, m.Model)
		}
		if len(tasks) > 1 {
			beside = append(beside, m.Task)
		}
		for _, c := range m.Cells {
			if len(budgets) > 1 && c.Policy != "full" {
				c.Budget = m.Budget.String()
			}
			if len(beside) > 0 {
				c.Policy += " (" + strings.Join(beside, ", ") + ")"
			}
			if !seen[c] { // the full cache's are in the maps of every budget
				seen[c], out = true, append(out, c)
			}
		}
	}
	return out
}

// needleCell is the cell of a row that is grouped by length and depth alone.
func needleCell(r evaluation.Row) (NeedleCell, bool) {
	c := NeedleCell{Policy: r.Label(), Accuracy: r.Mean().Score, Samples: r.Scored(), Metric: r.Metric, Tokens: -1, Depth: -1}
	for _, g := range r.Groups {
		switch v, err := strconv.ParseFloat(g.Value, 64); {
		case err != nil:
		case g.Key == "length":
			c.Tokens = int(v)
		case g.Key == "depth":
			c.Depth = v
		}
	}
	return c, r.Score != nil && len(r.Groups) == 2 && c.Tokens >= 0 && c.Depth >= 0
}
