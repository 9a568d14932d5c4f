package evaluation

import (
	"strconv"
	"strings"
)

// NeedleCells are the cells of heat maps: the rows that are grouped by length and depth and
// nothing else. A cell's policy has the model and the task beside it where there are several,
// and its budget where there are several of these.
func NeedleCells(rows []Row) []NeedleCell {
	var kept []Row
	var places []NeedleCell
	models, tasks, budgets := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for _, r := range rows {
		c, ok := placeOf(r.Groups)
		if !ok {
			continue
		}
		kept, places = append(kept, r), append(places, c)
		models[r.Model], tasks[r.Task] = true, true
		if r.Policy != full {
			budgets[r.Budget.String()] = true
		}
	}
	for i, r := range kept {
		c := &places[i]
		c.Policy, c.Accuracy, c.Samples, c.Metric = r.Label(), r.Score, r.Samples, r.Metric
		var beside []string
		if len(models) > 1 {
			beside = append(beside, r.Model)
		}
		if len(tasks) > 1 {
			beside = append(beside, r.Task)
		}
		if len(beside) > 0 {
			c.Policy += " (" + strings.Join(beside, ", ") + ")"
		}
		if len(budgets) > 1 && r.Policy != full {
			c.Budget = r.Budget.String()
		}
	}
	return places
}

// placeOf is where groups put a cell, if they do.
func placeOf(groups []Group) (NeedleCell, bool) {
	c := NeedleCell{Tokens: -1, Depth: -1}
	for _, g := range groups {
		switch v, err := strconv.ParseFloat(g.Value, 64); {
		case err != nil:
		case g.Key == "length":
			c.Tokens = int(v)
		case g.Key == "depth":
			c.Depth = v
		}
	}
	return c, len(groups) == 2 && c.Tokens >= 0 && c.Depth >= 0
}
