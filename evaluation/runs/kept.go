package runs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"slices"

	"glimpse/evaluation"
)

// decodeKept reads the lines of a KeptFile. Lines that a kill has cut are left out.
func decodeKept(text []byte) (all []*evaluation.Kept) {
	for line := range bytes.Lines(text) {
		if k, err := evaluation.DecodeKept(bytes.TrimSpace(line)); err == nil {
			all = append(all, k)
		}
	}
	return all
}

// joinKept adds to what is kept of a sample the cells of where it is there again.
func joinKept(all []*evaluation.Kept) (out []*evaluation.Kept) {
	type key struct {
		model, task string
		index       int
	}
	seen := make(map[key]*evaluation.Kept)
	for _, k := range all {
		first := seen[key{k.Model, k.Task, k.Index}]
		if first == nil {
			seen[key{k.Model, k.Task, k.Index}], out = k, append(out, k)
			continue
		}
		for _, c := range k.Cells {
			if len(k.Tokens) == len(first.Tokens) && !slices.ContainsFunc(first.Cells, func(o evaluation.KeptCell) bool { return o.Named() == c.Named() }) {
				first.Cells = append(first.Cells, c)
			}
		}
	}
	return out
}

// sortedKept has the order of predictions.
func sortedKept(all []*evaluation.Kept, models, tasks []string) []*evaluation.Kept {
	slices.SortFunc(all, func(a, b *evaluation.Kept) int {
		return cmp.Or(cmp.Compare(slices.Index(models, a.Model), slices.Index(models, b.Model)),
			cmp.Compare(slices.Index(tasks, a.Task), slices.Index(tasks, b.Task)), cmp.Compare(a.Index, b.Index))
	})
	return all
}

// ordered puts the cells of samples into the order that predictions, which are sorted, have them in.
func ordered(kept []*evaluation.Kept, all []*evaluation.Prediction) []*evaluation.Kept {
	place := make(map[evaluation.KeptCell]int)
	for _, p := range all {
		if c := (evaluation.KeptCell{Policy: p.Policy, Adapter: p.Adapter, Budget: p.Budget}); p.Policy != "" {
			if _, ok := place[c]; !ok {
				place[c] = len(place)
			}
		}
	}
	for _, k := range kept {
		slices.SortStableFunc(k.Cells, func(a, b evaluation.KeptCell) int { return cmp.Compare(place[a.Named()], place[b.Named()]) })
	}
	return kept
}

func writeKept(w io.Writer, all []*evaluation.Kept) error {
	lines := json.NewEncoder(w)
	for _, k := range all {
		if err := lines.Encode(k); err != nil {
			return err
		}
	}
	return nil
}
