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

// keep takes down what is kept of a sample.
func (f *folder) keep(k *evaluation.Kept) error {
	line, err := json.Marshal(k)
	if err != nil {
		return err
	}
	f.keeping.Lock()
	defer f.keeping.Unlock()
	_, err = f.kept.Write(append(line, '\n'))
	return err
}

// readKept reads a KeptFile, which may be missing. Lines that a kill has cut, and those of a
// sample that is there a second time, are left out.
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
	seen := make(map[key]bool)
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
		if err != nil || seen[key{k.Model, k.Task, k.Index}] {
			continue
		}
		seen[key{k.Model, k.Task, k.Index}] = true
		out = append(out, k)
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

func writeKept(w io.Writer, all []*evaluation.Kept) error {
	for _, k := range all {
		line, err := json.Marshal(k)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}
