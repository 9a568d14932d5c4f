package model

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"glimpse/checkpoints"
	"glimpse/internal/bytesize"
	"glimpse/kernels"
	"glimpse/kernels/memcount"
)

// Counted is m without numbers, on a backend that only counts memory: passes over it show
// what those over m would need. m may have shapes alone, and the model that
// Options.BeforeWeights gets.
func (m *Model) Counted() (*Model, *memcount.Counter) {
	b := memcount.New(m.Backend)
	return m.CountedOn(b), b
}

// CountedOn is Counted as on another device.
func (m *Model) CountedOn(b *memcount.Counter) *Model {
	d := &Model{
		Name: m.Name, Config: m.Config, Backend: b, Tokenizer: m.Tokenizer, tokenizerErr: m.tokenizerErr, template: m.template,
		folder: m.folder, family: m.family, shapes: &shapes{bytes: m.WeightBytes()}, counter: b,
	}
	for _, s := range m.stages {
		d.stages = append(d.stages, Stage{b, s.From, s.To, s.share})
	}
	b.SeekPeaks(false)
	d.bindNetwork(func(s slot) *kernels.Tensor {
		stored := m.slotType(s, b)
		if !s.compute {
			d.shapes.stored = stored
		}
		return b.Alloc(stored, s.shape...)
	})
	b.SeekPeaks(true)
	d.SetCacheDType(m.cacheName) // which was checked
	return d
}

// slotType is the type of a slot's weight in the memory of a backend.
func (m *Model) slotType(s slot, on kernels.Backend) kernels.DType {
	switch {
	case s.compute:
		return on.Compute()
	case m.weights == nil:
		return m.shapes.stored
	}
	info, _ := m.weights.Info(s.name)
	t, err := kernels.ParseStored(info.DType)
	if err != nil || t == kernels.F64 || t == kernels.I32 { // as load refuses, or converts it
		return on.Compute()
	}
	return on.Placed(t)
}

// slotBytes is the memory of a slot's weight.
func (m *Model) slotBytes(s slot) int64 {
	return int64(m.slotType(s, m.Backend).Bytes(kernels.ShapeLen(s.shape)))
}

// widenedBytes is the memory on the host of weights that are no part of a mapped file.
func (m *Model) widenedBytes() int64 {
	if m.weights == nil {
		return m.shapes.widened
	}
	return widenedBytes(m.weights, m.identity.names)
}

// MappedBytes are the weights that the host maps from their files: it counts them as free memory, and they are read again
// where that is taken.
func (m *Model) MappedBytes() int64 {
	if m.Backend.OwnMemory() {
		return 0
	}
	return m.WeightBytes() - m.widenedBytes()
}

// HeldWeights are the bytes that the weights take: of a device as it hands memory out, on the host those that it does
// not map.
func (m *Model) HeldWeights() int64 {
	if !m.Backend.OwnMemory() {
		return m.widenedBytes()
	}
	counted, counter := m.Counted()
	defer runtime.KeepAlive(counted)
	return counter.Live()
}

func widenedBytes(w *checkpoints.Weights, names []string) (n int64) {
	for _, name := range names {
		if info, _ := w.Info(name); info.Made {
			n += int64(info.Bytes)
		}
	}
	return n
}

// Counts tells that the model is one without numbers, as Counted makes it: what would be written
// to it need not be computed.
func (m *Model) Counts() bool { return m.counter != nil }

// Counter is what counts the memory of a model that Counted made; nil for others.
func (m *Model) Counter() *memcount.Counter { return m.counter }

// ErrMemory is returned where a run needs more memory than there is.
var ErrMemory = errors.New("not enough memory")

// MemoryPart is the memory of a run for one purpose, in bytes.
type MemoryPart struct {
	Name  string
	Bytes int64
}

// Forecast is the memory that a run will need.
type Forecast struct {
	Device    string // cuda:0
	Parts     []MemoryPart
	Need      int64 // at the most demanding moment
	Available int64
	// Fits is the longest prompt that would fit, about; 0: none, or it is not known.
	Fits   int
	Advice []string // what would lower the need
}

// NewForecast is the forecast of a run on m, whose [Model.Counted] is counted: of its weights and the rest that it needs,
// in bytes, named by parts.
func (m *Model) NewForecast(counted *Model, rest int64, parts []MemoryPart, advice ...string) *Forecast {
	weights := m.HeldWeights()
	f := &Forecast{Device: m.DeviceName(), Need: weights + rest, Parts: append([]MemoryPart{{"weights", weights}}, parts...), Advice: advice}
	if counted.CacheDType().Numbers() != kernels.BF16 {
		f.Advice = append([]string{"take --cache-dtype bf16"}, advice...)
	}
	return f
}

// Check is an error that wraps ErrMemory where the run needs more than there is.
func (f *Forecast) Check() error {
	if f.Need <= f.Available {
		return nil
	}
	parts := make([]string, len(f.Parts))
	for i, p := range f.Parts {
		parts[i] = fmt.Sprintf("%s %s", p.Name, bytesize.FormatMemory(p.Bytes))
	}
	advice := f.Advice
	if f.Fits > 0 {
		advice = append([]string{fmt.Sprintf("about %d tokens of prompt would fit", f.Fits)}, advice...)
	}
	return fmt.Errorf("%s: %w: %s needed (%s), %s available; %s", f.Device, ErrMemory, bytesize.FormatMemory(f.Need), strings.Join(parts, ", "), bytesize.FormatMemory(f.Available), strings.Join(advice, ", or "))
}

// FitPrompt sets Fits for a run over so many tokens, of whose need so many bytes do not
// depend on them.
func (f *Forecast) FitPrompt(tokens int, fixed int64) {
	if f.Need > fixed && f.Available > fixed {
		f.Fits = int(float64(tokens) * float64(f.Available-fixed) / float64(f.Need-fixed))
	}
}

// MemoryVariable switches forecasts off where it is "off".
const MemoryVariable = "GLIMPSE_MEMORY_CHECK"

// Available is the memory that a run on m could have: of an accelerator what its
// allocator can get or keeps for operations, of several what they can until the fullest has no more; on the host what host tells, without which, or where that is 0, it
// is not known. Nor is it where MemoryVariable says that nobody wants to know.
func (m *Model) Available(host func() int64) (bytes int64, ok bool) {
	if os.Getenv(MemoryVariable) == "off" {
		return 0, false
	}
	if m.Backend.OwnMemory() {
		ok = true
		return m.room(func(b kernels.Backend) int64 {
			use := b.Memory()
			ok = ok && use.Total > 0 // a counter of memory has none
			return use.Available + use.Kept
		}), ok
	}
	if host == nil {
		return 0, false
	}
	n := host()
	return n, n > 0
}

// CheckWeights is an error where the weights alone do not fit, for Options.BeforeWeights.
func (m *Model) CheckWeights() error {
	if _, ok := m.Available(nil); !ok {
		return nil
	}
	available := m.room(func(b kernels.Backend) int64 { return b.Memory().Available }) // for tensors alone
	weights := m.HeldWeights()
	f := Forecast{Device: m.DeviceName(), Need: weights, Available: available, Parts: []MemoryPart{{"weights", weights}}, Advice: []string{"use a smaller model, or a device with more memory"}}
	return f.Check()
}
