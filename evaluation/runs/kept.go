package runs

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"glimpse/evaluation"
	"glimpse/internal/regularfile"
)

// openKept opens KeptFile, whose last line a kill may have cut.
func (f *folder) openKept() (err error) {
	if f.kept, err = os.OpenFile(f.file(KeptFile), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o666); err != nil {
		return err
	}
	info, err := f.kept.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.kept.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.kept.WriteString("\n")
	return err
}

// keepSample takes down what is kept of a sample.
func (f *folder) keepSample(k *evaluation.Kept) error {
	line, err := json.Marshal(k)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	f.keeping.Lock()
	defer f.keeping.Unlock()
	if f.kept == nil {
		f.waiting = append(f.waiting, line...)
		return nil
	}
	_, err = f.kept.Write(line)
	return err
}

// readKept reads a KeptFile, which may be missing. Lines that a kill has cut are left out; of a sample
// that is there a second time, the cells that it lacked are added.
func readKept(path string) ([]*evaluation.Kept, error) {
	in, err := regularfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	type key struct {
		model, task string
		index       int
	}
	seen := make(map[key]*evaluation.Kept)
	var out []*evaluation.Kept
	r := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := regularfile.Line(r, maxJSON)
		if err == io.EOF {
			return out, nil // what is left has no end
		}
		if err != nil {
			return nil, err
		}
		k, err := evaluation.DecodeKept(bytes.TrimSpace(line))
		if err != nil {
			continue
		}
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
