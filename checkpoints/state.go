package checkpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"

	"glimpse/internal/atomicfile"
	"glimpse/kernels"
)

const (
	stateFormat  = "glimpse-run-state"
	stateVersion = 1
)

// State is where a training run stands: everything that is needed to go on with
// the same bits.
type State struct {
	// Tensors are parameters and optimiser moments, by name.
	Tensors map[string]StateTensor
	// Run is a JSON object with the rest: step, generator state, schedule,
	// position in the data, hash of the configuration, instruction set. This
	// package does not look into it.
	Run json.RawMessage
}

// StateTensor is a tensor in single or double precision: exactly one of F32 and
// F64 is not nil, of length product(Shape). Every bit pattern is kept, also those
// of NaN.
type StateTensor struct {
	Shape []int
	F32   []float32
	F64   []float64
}

// PreviousState is where SaveState keeps the state before the last one.
func PreviousState(path string) string { return path + ".previous" }

// SaveState writes the state to one file, atomically. It is a safetensors file whose metadata
// hold the JSON record and a SHA-256 over the whole file. The same state always gives the same
// bytes. The state that was there is kept under the name of PreviousState: a file that was damaged after it was written costs some steps and
// not the run. At every moment, also after an error, one of the two is whole.
func SaveState(path string, s *State) error {
	f, err := stageState(path, s)
	if err == nil {
		defer f.Abort()
		if err = keepPrevious(path); err == nil {
			err = f.Commit()
		}
	}
	if err != nil {
		return fmt.Errorf("write run state %s: %w", path, err)
	}
	return nil
}

// keepPrevious gives the file a second name, under which it stays when the first is
// given to another. Where there are no hard links it is renamed.
func keepPrevious(path string) error {
	previous := PreviousState(path)
	link := previous + ".new" // a link can't replace a name, a rename can
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Link(path, link)
	switch {
	case err == nil:
		return os.Rename(link, previous)
	case errors.Is(err, fs.ErrNotExist):
		return nil // the first state
	}
	if err := os.Rename(path, previous); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// stageState writes the state without giving it its name yet.
func stageState(path string, s *State) (*atomicfile.File, error) {
	run, err := compactObject(s.Run)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	tensors := make([]TensorView, 0, len(s.Tensors))
	for _, name := range slices.Sorted(maps.Keys(s.Tensors)) {
		t := s.Tensors[name]
		switch {
		case (t.F32 == nil) == (t.F64 == nil):
			return nil, fmt.Errorf("tensor %q: want exactly one of F32 and F64", name)
		case t.F32 != nil:
			tensors = append(tensors, F32Tensor(name, t.Shape, t.F32))
		default:
			tensors = append(tensors, F64Tensor(name, t.Shape, t.F64))
		}
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	err = WriteSealed(f, tensors, map[string]string{"format": stateFormat, "run": string(run), "version": strconv.Itoa(stateVersion)})
	if err != nil {
		f.Abort()
		return nil, err
	}
	return f, nil
}

// ReadState reads and verifies a run state. ErrCorrupt if any bit of the file is
// not as it was written, ErrVersion if it is of another format version.
func ReadState(path string) (*State, error) {
	file, err := OpenSafetensors(path)
	if err != nil {
		return nil, fmt.Errorf("read run state: %w", err)
	}
	s, err := decodeState(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("read run state %s: %w", path, err)
	}
	return s, nil
}

func decodeState(file *Safetensors) (*State, error) {
	meta := file.Metadata()
	if meta["format"] != stateFormat {
		return nil, Corruptf("format: got %.100q, want %q", meta["format"], stateFormat)
	}
	version, err := strconv.Atoi(meta["version"])
	if err != nil {
		return nil, Corruptf("version: got %.100q, want a number", meta["version"])
	}
	if version != stateVersion {
		return nil, versionError{got: version, want: stateVersion}
	}
	if err := file.VerifySeal(); err != nil {
		return nil, err
	}
	s := &State{Tensors: make(map[string]StateTensor, len(file.tensors))}
	if s.Run, err = compactObject(json.RawMessage(meta["run"])); err != nil {
		return nil, Corruptf("run: %v", err)
	}
	for name := range file.tensors {
		if s.Tensors[name], err = file.stateTensor(name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Safetensors) stateTensor(name string) (StateTensor, error) {
	dtype, shape := s.tensors[name].dtype, s.tensors[name].shape
	if dtype != kernels.F32.String() && dtype != kernels.F64.String() {
		return StateTensor{}, Corruptf("tensor %.200q: got %s, want F32 or F64", name, dtype)
	}
	view, err := s.Tensor(name)
	if err != nil {
		return StateTensor{}, err
	}
	t := StateTensor{Shape: shape}
	if view.DType == kernels.F64 {
		t.F64 = view.f64s()
		return t, nil
	}
	t.F32 = make([]float32, view.Len())
	return t, view.ReadF32(t.F32)
}
