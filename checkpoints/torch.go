package checkpoints

import (
	"archive/zip"
	"bytes"
	"io"
	"slices"
	"strings"

	"glimpse/kernels"
)

// What a file of torch.save may hold here: torchDict, *torchList, torchTuple, *torchTensor, string, int64, float64, bool, nil, and
// torchOpaque for everything else. Nothing that a file names is run.
type (
	torchDict   map[string]any
	torchList   struct{ items []any }
	torchTuple  []any
	torchGlobal string
	torchOpaque struct{}
)

// torchStorage is numbers of one type.
type torchStorage struct {
	dtype kernels.DType
	data  []byte
}

// torchTensor is a part of a storage.
type torchTensor struct {
	storage        torchStorage
	offset         int64
	shape, strides []int64
}

// torchTypes are the types of numbers by the names of PyTorch's storages.
var torchTypes = map[torchGlobal]kernels.DType{
	"torch.FloatStorage": kernels.F32, "torch.DoubleStorage": kernels.F64, "torch.HalfStorage": kernels.F16, "torch.BFloat16Storage": kernels.BF16,
}

// matrix is a contiguous tensor as a matrix: a vector has one row, and all dimensions but the last are rows.
func (t *torchTensor) matrix() (Matrix, error) {
	n, size := int64(1), int64(t.storage.dtype.Size())
	for i := len(t.shape) - 1; i >= 0; i-- {
		if t.shape[i] < 1 || t.shape[i] > int64(len(t.storage.data)) || t.shape[i] > 1 && t.strides[i] != n {
			return Matrix{}, Corruptf("shape %v with strides %v, want a contiguous tensor", t.shape, t.strides)
		}
		if n *= t.shape[i]; n > int64(len(t.storage.data)) {
			return Matrix{}, Corruptf("shape %v, but the file has %d bytes of it", t.shape, len(t.storage.data))
		}
	}
	if len(t.shape) == 0 || t.offset < 0 || t.offset > int64(len(t.storage.data)) || (t.offset+n)*size > int64(len(t.storage.data)) {
		return Matrix{}, Corruptf("shape %v from number %d on, but the file has %d bytes of it", t.shape, t.offset, len(t.storage.data))
	}
	cols := t.shape[len(t.shape)-1]
	m := Matrix{Rows: int(n / cols), Cols: int(cols), Data: make([]float32, n)}
	return m, TensorView{DType: t.storage.dtype, Shape: []int{int(n)}, Data: t.storage.data[t.offset*size : (t.offset+n)*size]}.ReadF32(m.Data)
}

// readTorch reads the file that torch.save writes: a zip archive with a pickle, NAME/data.pkl, and the numbers of each storage,
// NAME/data/KEY.
func readTorch(name string, data []byte) (any, error) {
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, Corruptf("%s: want a file of torch.save: %v", name, err)
	}
	i := slices.IndexFunc(archive.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, "/data.pkl") })
	if i < 0 {
		return nil, Corruptf("%s: want a file of torch.save, got an archive without data.pkl", name)
	}
	folder := strings.TrimSuffix(archive.File[i].Name, "data.pkl")
	read := func(path string) ([]byte, error) {
		at := slices.IndexFunc(archive.File, func(f *zip.File) bool { return f.Name == path })
		if at < 0 {
			return nil, Corruptf("no %.200q in the archive", path)
		}
		f := archive.File[at]
		if f.Method != zip.Store || f.UncompressedSize64 > uint64(len(data)) { // torch compresses nothing
			return nil, Corruptf("%.200q is compressed, want it stored", path)
		}
		r, err := f.Open()
		if err != nil {
			return nil, Corruptf("%.200q: %v", path, err)
		}
		defer r.Close()
		out, err := io.ReadAll(r)
		if err != nil {
			return nil, Corruptf("%.200q: %v", path, err)
		}
		return out, nil
	}
	pickle, err := read(archive.File[i].Name)
	if err != nil {
		return nil, Corruptf("%s: %v", name, err)
	}
	p := &unpickler{in: pickle, memo: make(map[int]any), storages: make(map[string]torchStorage)}
	p.storage = func(key string) ([]byte, error) { return read(folder + "data/" + key) }
	root, err := p.run()
	if err != nil {
		return nil, Corruptf("%s: %s: %v", name, archive.File[i].Name, err)
	}
	return root, nil
}
