package evaluation

import (
	"slices"
	"strconv"

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

// needleCell is the cell of a row that is grouped by length and depth alone.
func needleCell(r Row) (NeedleCell, bool) {
	c := NeedleCell{Policy: r.Label(), Accuracy: r.Score, Samples: r.Samples, Tokens: -1, Depth: -1}
	for _, g := range r.Groups {
		switch v, err := strconv.ParseFloat(g.Value, 64); {
		case err != nil:
		case g.Key == "length":
			c.Tokens = int(v)
		case g.Key == "depth":
			c.Depth = v
		}
	}
	return c, len(r.Groups) == 2 && c.Tokens >= 0 && c.Depth >= 0
}
