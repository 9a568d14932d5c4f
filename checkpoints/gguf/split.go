package gguf

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"glimpse/checkpoints"
	"glimpse/internal/listing"
)

// splitName is the name of file i, from 0, of n.
func splitName(prefix string, i, n int64) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, i+1, n)
}

// splitPrefix is the beginning of the names of n files, by the path of one of them.
func splitPrefix(path string, n int64) (prefix string, ok bool) {
	digits := len(splitName("", 0, n))
	if len(path) <= digits {
		return "", false
	}
	prefix = path[:len(path)-digits]
	var i int64
	if _, err := fmt.Sscanf(path[len(prefix):], "-%05d-", &i); err != nil || i < 1 || i > n {
		return "", false
	}
	return prefix, splitName(prefix, i-1, n) == path
}

// Parts are the names of all files of the model that a file's name belongs to, in order: that name
// alone unless it is like NAME-00001-of-00003.gguf.
func Parts(name string) []string {
	var n int64
	if of := strings.LastIndex(name, "-of-"); of >= 0 {
		fmt.Sscanf(name[of:], "-of-%05d", &n)
	}
	prefix, ok := splitPrefix(name, n)
	if !ok {
		return []string{name}
	}
	parts := make([]string, n)
	for i := range n {
		parts[i] = splitName(prefix, i, n)
	}
	return parts
}

// openSplit opens all files of a model of n, by the path of one of them.
func openSplit(path string, n int64) (f *File, err error) {
	if n > math.MaxUint16 { // llama.cpp's type for it
		return nil, checkpoints.Corruptf("%s: key \"split.count\": %d, want at most %d", path, n, math.MaxUint16)
	}
	prefix, ok := splitPrefix(path, n)
	if !ok {
		return nil, checkpoints.Corruptf("%s: one of the %d files that a model was split into, want a name like %s and the others beside it", path, n, splitName("NAME", 0, n))
	}
	var parts []*part
	defer func() {
		if err != nil {
			for _, p := range parts {
				err = errors.Join(err, p.close())
			}
		}
	}()
	var unreadable []error
	for i := range n {
		p, err := openPart(splitName(prefix, i, n))
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		parts = append(parts, p)
	}
	if len(unreadable) > 0 {
		return nil, fmt.Errorf("%d of the %d files %s: %w", len(unreadable), n, filepath.Base(prefix)+"-*.gguf", listing.JoinErrors(unreadable))
	}
	if f, err = newFile(parts...); err != nil {
		return nil, err
	}
	for _, key := range []string{"split.no", "split.count", "split.tensors.count"} {
		for i, p := range parts {
			want := map[string]int{"split.no": i, "split.count": len(parts), "split.tensors.count": len(f.index)}[key]
			got, ok, err := p.int(key)
			switch {
			case err != nil:
				return nil, err
			case !ok:
				return nil, checkpoints.Corruptf("%s: key %q is missing, want %d", p.name, key, want)
			case got != int64(want):
				return nil, checkpoints.Corruptf("%s: key %q: %d, want %d", p.name, key, got, want)
			}
		}
	}
	return f, nil
}
