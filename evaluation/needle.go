package evaluation

import (
	"slices"
	"strconv"
	"strings"

	"glimpse/eviction"
)

// NeedleMap are the heat maps of one model and task at one budget: a cell for every policy,
// prompt length and depth. Those of the full cache are in the maps of every budget.
type NeedleMap struct {
	Model, Task string
	Budget      eviction.Budget
	Cells       []NeedleCell
}

// NeedleMaps are the heat maps that rows grouped by length and depth make, in the order in
// which models and tasks appear, budgets rising.
func NeedleMaps(rows []Row) []NeedleMap {
	var out, full []NeedleMap
	at := func(maps *[]NeedleMap, r Row) *NeedleMap {
		i := slices.IndexFunc(*maps, func(m NeedleMap) bool { return m.Model == r.Model && m.Task == r.Task && m.Budget == r.Budget })
		if i < 0 {
			i = len(*maps)
			*maps = append(*maps, NeedleMap{Model: r.Model, Task: r.Task, Budget: r.Budget})
		}
		return &(*maps)[i]
	}
	order := make(map[[2]string]int)
	for _, r := range rows {
		c, ok := needleCell(r)
		if !ok {
			continue
		}
		if name := [2]string{r.Model, r.Task}; order[name] == 0 {
			order[name] = len(order) + 1
		}
		maps := &out
		if r.Budget.IsZero() {
			maps = &full
		}
		m := at(maps, r)
		m.Cells = append(m.Cells, c)
	}
	for _, f := range full {
		alone := true
		for i := range out {
			if out[i].Model == f.Model && out[i].Task == f.Task {
				out[i].Cells, alone = append(slices.Clone(f.Cells), out[i].Cells...), false
			}
		}
		if alone {
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b NeedleMap) int {
		if d := order[[2]string{a.Model, a.Task}] - order[[2]string{b.Model, b.Task}]; d != 0 {
			return d
		}
		return a.Budget.Compare(b.Budget)
	})
	return out
}

// NeedleCells are the cells of all maps for one picture. A cell's policy has the model and
// the task beside it where there are several, and its budget where there are several of
// these; those of the full cache have none.
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
			if len(budgets) > 1 && c.Policy != full {
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
func needleCell(r Row) (NeedleCell, bool) {
	c := NeedleCell{Policy: r.Label(), Accuracy: orNaN(r.Score), Samples: r.Scored(), Metric: r.Metric, Tokens: -1, Depth: -1}
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
