package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/listing"
)

// groupKey is what samples are grouped by.
type groupKey struct {
	key    string
	values []string
}

// groupsOf are the keys that group the section's samples, with their values:
// numbers in their order, others as they appear.
func (s *Section) groupsOf() []groupKey {
	var out []groupKey
	for _, r := range s.groups {
		if len(r.Groups) != 1 {
			continue
		}
		g := r.Groups[0]
		i := slices.IndexFunc(out, func(k groupKey) bool { return k.key == g.Key })
		if i < 0 {
			i = len(out)
			out = append(out, groupKey{key: g.Key})
		}
		out[i].values = listing.Union(out[i].values, g.Value)
	}
	for _, k := range out {
		slices.SortStableFunc(k.values, func(a, b string) int {
			x, okX := leading(a)
			y, okY := leading(b)
			if okX && okY {
				return cmp.Compare(x, y)
			}
			return 0
		})
	}
	return slices.DeleteFunc(out, func(k groupKey) bool { return len(k.values) < 2 })
}

// leading is the number that a text begins with: 4 of "4-8k", 4096 of "4k".
func leading(text string) (float64, bool) {
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	unit := ""
	if end >= 0 {
		text, unit = text[:end], text[end:]
	}
	v, err := strconv.ParseFloat(text, 64)
	if strings.HasPrefix(strings.ToLower(unit), "k") {
		v *= 1024
	}
	return v, err == nil
}

// groupTabs have the scores by group of samples: by length, depth, difficulty.
func (s *Section) groupTabs() []Tab {
	var out []Tab
	for _, k := range s.groupsOf() {
		for _, b := range s.budgetsOr() {
			out = append(out, Tab{Of: "by " + k.key, Name: budgetName(b), Table: s.groupTable(k, b)})
		}
	}
	return out
}

func (s *Section) groupTable(k groupKey, b eviction.Budget) *Table {
	type key struct{ label, value string }
	rows := make(map[key][]evaluation.Row)
	for _, r := range s.groups {
		if len(r.Groups) == 1 && r.Groups[0].Key == k.key && (r.Budget == b || r.Budget.IsZero()) {
			at := key{r.Label(), r.Groups[0].Value}
			rows[at] = append(rows[at], r)
		}
	}
	t := s.policyTable(slices.DeleteFunc(slices.Clone(s.order), func(label string) bool {
		return !slices.ContainsFunc(k.values, func(v string) bool { return rows[key{label, v}] != nil })
	}))
	for _, v := range k.values {
		most := 0 // a mean over fewer tasks than the others' is none
		for _, label := range t.labels {
			most = max(most, len(rows[key{label, v}]))
		}
		t.addColumn(Head{Text: v, Unit: s.unit().Sign(), Note: fmt.Sprintf("%s = %s, mean over %d tasks", k.key, v, most)}, higher, func(label string) (c Cell, score float64, ok bool) {
			x := rows[key{label, v}]
			if x == nil || len(x) != most {
				return c, score, false
			}
			c, score = scoreCell(evaluation.MeanOf(x))
			c.Note = samplesIn(x, "")
			return c, score, true
		})
	}
	return t.Table
}
