package model

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"glimpse/checkpoints"
	"glimpse/internal/filecache"
	"glimpse/internal/parallel"
	"glimpse/internal/version"
	"glimpse/kernels"
)

// identity names weights by the numbers that the network reads. Models that share weights share it.
type identity struct {
	names []string // of the tensors, sorted
	mu    sync.Mutex
	sum   string // "" until computed
}

func identityOf(slots []slot) *identity {
	names := make(map[string]bool, len(slots))
	for _, s := range slots {
		names[s.name] = true
	}
	return &identity{names: slices.Sorted(maps.Keys(names))}
}

// SHA256 identifies the weights, in lower-case hexadecimal: the SHA-256 of a line
//
//	NAME DTYPE [SHAPE] SHA256
//
// for every tensor that the network reads, sorted by name, as in
// "model.norm.weight F32 [576] 1f0c…". The last word is the SHA-256 of the tensor's bytes, in blocks
// of their values in BF16. So it is the same for other shards, other metadata and surplus tensors,
// and another for another type of numbers. It is computed on the first call, on all cores, and remembered in the cache (filecache.Root) for as long
// as the files stay as they are.
func (m *Model) SHA256(ctx context.Context) (string, error) {
	if m.weights == nil {
		return "", fmt.Errorf("model %s: has no stored weights", m.Name)
	}
	sum, err := m.identity.sha256(ctx, m.weights)
	if err != nil {
		return "", fmt.Errorf("model %s: hash weights: %w", m.Name, err)
	}
	return sum, nil
}

// KnownAs is recorded where that names the weights, and otherwise SHA256. Adapters, pairs and
// checkpoints of earlier versions name weights by the bytes of their files, which are only read
// where SHA256 is not what is recorded.
func (m *Model) KnownAs(ctx context.Context, recorded string) (string, error) {
	sum, err := m.SHA256(ctx)
	if err != nil || sum == recorded {
		return sum, err
	}
	files, err := m.weights.SHA256(ctx, nil)
	if err != nil {
		return "", err
	}
	if files == recorded {
		return files, nil
	}
	return sum, nil
}

func (d *identity) sha256(ctx context.Context, w *checkpoints.Weights) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sum != "" {
		return d.sum, nil
	}
	cached := d.cache(w)
	if cached.read(&d.sum) {
		return d.sum, nil
	}
	const chunk = 1 << 18 // bytes, or about as many elements
	lines, errs := make([]string, len(d.names)), make([]error, len(d.names))
	// Memory of widened blocks is used again: as much garbage as there are weights would be collected meanwhile.
	var wides sync.Pool
	parallel.For(len(d.names), func(i int) {
		view, err := w.Tensor(d.names[i])
		h := sha256.New()
		if _, blocks := view.DType.Format(); blocks && err == nil {
			var t *kernels.Tensor
			if t, err = view.Tensor(); err == nil {
				rows := 1 + chunk/max(1, t.Width())
				wide, _ := wides.Get().(*kernels.Tensor)
				if n := min(rows, t.Dim0()) * t.Width(); wide == nil || wide.Len() < n {
					wide = kernels.NewTensor(kernels.BF16, max(n, chunk))
				}
				for from := 0; from < t.Dim0() && err == nil; from += rows {
					part := t.Rows(from, min(from+rows, t.Dim0()))
					kernels.WidenTo(wide, part)
					h.Write(wide.Memory()[:2*part.Len()])
					err = ctx.Err()
				}
				wides.Put(wide)
			}
			view.Data = nil
		}
		for part := range slices.Chunk(view.Data, chunk) {
			if err = ctx.Err(); err != nil {
				break
			}
			h.Write(part)
		}
		errs[i] = err
		lines[i] = fmt.Sprintf("%s %s %v %x\n", d.names[i], view.DType.Numbers(), view.Shape, h.Sum(nil))
	})
	for _, err := range errs {
		if err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	d.sum = hex.EncodeToString(sum[:])
	cached.write(d.sum)
	return d.sum, nil
}

// sumFile is where a sum is remembered between runs of the program; "" for nowhere. What goes wrong with it costs time and nothing else.
type sumFile string

// sumFiles are the bytes of all files.
const sumFiles = 1 << 20

// cache is the file of weights that are as they were, for this version of the program.
func (d *identity) cache(w *checkpoints.Weights) sumFile {
	files := w.Version()
	root, err := filecache.Root()
	if files == "" || err != nil {
		return ""
	}
	key := sha256.Sum256([]byte(strings.Join(append([]string{version.String(), files}, d.names...), "\n")))
	return sumFile(filepath.Join(root, "weights", hex.EncodeToString(key[:16])+".sha256"))
}

func (f sumFile) read(sum *string) bool {
	raw, err := os.ReadFile(string(f))
	if _, odd := hex.DecodeString(string(raw)); err != nil || odd != nil || len(raw) != 2*sha256.Size {
		return false
	}
	*sum = string(raw)
	return true
}

func (f sumFile) write(sum string) {
	if f == "" {
		return
	}
	if folder, err := filecache.Open(filepath.Dir(string(f)), filepath.Ext(string(f)), sumFiles); err == nil {
		folder.Write(string(f), int64(len(sum)), func(w io.Writer) error {
			_, err := io.WriteString(w, sum)
			return err
		})
	}
}
