package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/internal/yamlconfig"
	"glimpse/model"
	"glimpse/training"

	"github.com/spf13/pflag"
)

// spec is a training run as a file and flags describe it. Its json tags are the keys
// of the file, and of the resolved configuration that is written beside the results.
type spec struct {
	Preset     string   `json:"preset,omitempty"`   // hyper-parameters of a paper, which all other keys override
	Model      string   `json:"model"`              // folder; "" is the built-in model
	Device     string   `json:"device"`             // where to compute
	CacheDType string   `json:"cache_dtype"`        // of keys and values: auto, float32 or bf16
	Data       textList `json:"data,omitempty"`     // pair files, or folders or s3:// names of them; none draws synthetic prompts
	HeldOut    textList `json:"held_out,omitempty"` // pair files to validate on; none takes some of data
	Tasks      string   `json:"tasks"`              // synthetic tasks
	Tokens     int      `json:"tokens"`             // prompt length of the synthetic tasks
	Outs       textList `json:"outs"`               // adapter folders, one per adapter
	RunDir     string   `json:"run,omitempty"`      // folder for configuration, logs, curves and state
	Log        string   `json:"log,omitempty"`      // JSONL of every step's numbers
	Replace    bool     `json:"replace"`            // adapter folders that exist

	Checkpoint      string `json:"checkpoint,omitempty"` // file that keeps the state of the run
	CheckpointEvery int    `json:"checkpoint_every"`     // steps

	Upload string               `json:"upload,omitempty"` // folder or s3:// name for checkpoints
	Export string               `json:"export,omitempty"` // and for the adapters
	S3     objectstore.Settings `json:"s3,omitzero"`

	Workers     int   `json:"workers"`      // samples worked on at the same time; 0 chooses
	CacheMemory int64 `json:"cache_memory"` // bytes of repeated samples kept in memory
	CacheDisk   int64 `json:"cache_disk"`   // and, beyond that, on disk

	Epochs   int           `json:"epochs,omitempty"` // times through the data, in the place of steps
	Train    trainSettings `json:"train"`
	Adapters []adapterSpec `json:"adapters,omitempty"`
	Sweep    *sweepSpec    `json:"sweep,omitempty"` // of "train sweep"

	// What a run came to, per adapter.
	metrics []map[string]float64
	sizes   []int

	resume bool
	sets   []string // KEY=VALUE of --set
	preset *training.Preset
}

// trainSettings is training.Config with the list of adapters as files may also have it.
type trainSettings struct {
	training.Config
	Adapters []adapterSpec `json:"adapters,omitempty"`
}

// adapterSpec is an adapter of a file.
type adapterSpec struct {
	training.AdapterConfig
	Modules moduleList `json:"modules"`
	// InitToken also takes "end": the last token of the first prompt.
	InitToken initToken `json:"init_token"`
	Out       string    `json:"out,omitempty"` // folder, instead of outs
}

// resolvedPooling stands for the kernel that fits the model: 1 for the built-in one,
// whose facts are single tokens, else the paper's.
const resolvedPooling = 0

// Defaults implements yamlconfig.Defaulter: what an adapter leaves out is as in its
// paper, but for the learning rate, which only a preset gives.
func (a *adapterSpec) Defaults(value func(key string) string) {
	p, err := training.Presets.Lookup(value("kind"))
	if err != nil {
		return // an unknown kind is named by Validate
	}
	a.AdapterConfig = p.Adapter
	a.Modules, a.AdapterConfig.Modules = p.Adapter.Modules, nil
	a.InitToken = initToken(p.Adapter.InitToken)
	a.Pooling = resolvedPooling
	if m := value("modules"); m == "none" {
		a.Rank, a.Alpha = 0, 0
	}
}

// config is the adapter as the trainer takes it.
func (a *adapterSpec) config() training.AdapterConfig {
	c := a.AdapterConfig
	c.Modules, c.InitToken = a.Modules, int32(a.InitToken)
	if len(c.Modules) == 0 {
		c.Modules, c.Rank, c.Alpha = nil, 0, 0
	}
	return c
}

// textList is a list of texts that may also be a single one.
type textList []string

// SetScalar implements yamlconfig.Scalar.
func (t *textList) SetScalar(text string) error {
	*t = nil
	if text != "" {
		*t = textList{text}
	}
	return nil
}

// moduleList also takes all, qv, none and comma-separated names.
type moduleList []model.Module

// SetScalar implements yamlconfig.Scalar.
func (m *moduleList) SetScalar(text string) (err error) {
	*m, err = model.ParseModules(text)
	return err
}

// MarshalJSON writes what SetScalar or a list of names reads back: an empty list would
// be lost among defaults.
func (m moduleList) MarshalJSON() ([]byte, error) {
	if len(m) == 0 {
		return []byte(`"none"`), nil
	}
	return json.Marshal([]model.Module(m))
}

func (m *moduleList) Set(text string) error { return m.SetScalar(text) }
func (m *moduleList) Type() string          { return "list" }
func (m *moduleList) String() string {
	if len(*m) == 0 {
		return "none"
	}
	if slices.Equal(*m, model.Modules) {
		return "all"
	}
	if slices.Equal(*m, moduleList{model.QProj, model.VProj}) {
		return "qv"
	}
	names := make([]string, len(*m))
	for i, x := range *m {
		names[i] = string(x)
	}
	return strings.Join(names, ",")
}

// initToken is a token id, -1 for none, or initEnd.
type initToken int32

const initEnd initToken = -2

// SetScalar implements yamlconfig.Scalar.
func (t *initToken) SetScalar(text string) error {
	if text == "end" {
		*t = initEnd
		return nil
	}
	var id int32
	if _, err := fmt.Sscanf(text, "%d", &id); err != nil || fmt.Sprint(id) != text || id < -1 {
		return fmt.Errorf("got %q, want a token id, -1 for random rows, or end", text)
	}
	*t = initToken(id)
	return nil
}

func (t *initToken) Set(text string) error { return t.SetScalar(text) }
func (t *initToken) Type() string          { return "id" }
func (t *initToken) String() string {
	if *t == initEnd {
		return "end"
	}
	return fmt.Sprint(int32(*t))
}

// defaultSpec holds what neither file nor flags need to say.
func defaultSpec() *spec {
	c := training.DefaultConfig()
	c.Seed = 1
	return &spec{Device: "cpu", CacheDType: "auto", Tasks: "default", Tokens: 512, CheckpointEvery: 100, Train: trainSettings{Config: c}}
}

// bind adds the flags of the settings that all adapters of a run share.
func (s *spec) bind(f *pflag.FlagSet) {
	c := &s.Train.Config
	f.StringVar(&s.Preset, "preset", s.Preset, "hyper-parameters of a paper, which other flags override: "+strings.Join(training.Presets.Names(), ", "))
	f.StringVar(&s.Model, "model", s.Model, "model folder, org/name[@revision] of the Hugging Face hub or s3://BUCKET/NAME, which are downloaded once; empty is the built-in model")
	f.StringVar(&s.Device, "device", s.Device, "where to compute: cpu, cuda:N, or auto for a GPU where there is one (see \"evict doctor\")")
	f.StringVar(&s.CacheDType, "cache-dtype", s.CacheDType, model.CacheDTypeUsage)
	f.StringSliceVar((*[]string)(&s.Data), "data", s.Data, "pair files made by train generate, or folders or s3://BUCKET/NAME of their shards; none draws fresh synthetic prompts (built-in model only)")
	f.StringSliceVar((*[]string)(&s.HeldOut), "held-out", s.HeldOut, "pair files to validate on; without them, one pair in ten of --data, --validate at most, is held out")
	f.StringVar(&s.Tasks, "tasks", s.Tasks, "synthetic tasks, comma-separated, or default, or all")
	f.IntVar(&s.Tokens, "tokens", s.Tokens, "prompt length of the synthetic tasks")
	f.IntVar(&c.Steps, "steps", c.Steps, "optimiser steps")
	f.IntVar(&s.Epochs, "epochs", s.Epochs, "times through --data, in the place of --steps")
	f.IntVar(&c.Batch, "batch", c.Batch, "samples per step")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "seed of data order and initialisation")
	f.IntVar(&c.MaxResponse, "max-response", c.MaxResponse, "most response tokens used")
	f.IntVar(&c.Warmup, "warmup", c.Warmup, "steps of linear warm-up; 0: --warmup-ratio says")
	f.Float64Var(&c.WarmupRatio, "warmup-ratio", c.WarmupRatio, "share of the steps that is linear warm-up")
	f.StringVar(&c.Schedule, "schedule", c.Schedule, "learning rate after warm-up: cosine or constant")
	f.Float64Var(&c.FinalRatio, "final-ratio", c.FinalRatio, "learning rate at the end of the cosine, as a share of the peak")
	f.Float64Var(&c.Beta1, "beta1", c.Beta1, "AdamW: decay of the mean gradient")
	f.Float64Var(&c.Beta2, "beta2", c.Beta2, "AdamW: decay of the mean squared gradient")
	f.Float64Var(&c.Epsilon, "epsilon", c.Epsilon, "AdamW: added to the root of the mean squared gradient")
	f.Float64Var(&c.WeightDecay, "weight-decay", c.WeightDecay, "AdamW: decoupled weight decay; 0 is Adam")
	f.Float64Var(&c.Clip, "clip", c.Clip, "global gradient norm; 0 does not clip")
	f.IntVar(&s.Workers, "workers", s.Workers, "samples worked on at the same time; 0 chooses by the model's size")
	f.Int64Var(&s.CacheMemory, "cache-memory", s.CacheMemory, "bytes of repeated samples' keys, values and targets kept in memory")
	f.Int64Var(&s.CacheDisk, "cache-disk", s.CacheDisk, "bytes of them kept on disk beyond that")
	v := &c.Validation
	f.IntVar(&v.Samples, "validate", v.Samples, "held-out samples; 0 validates nothing")
	f.IntVar(&v.Every, "validate-every", v.Every, "steps between validations, of which the best one's parameters are exported; 0 validates at the end only")
	f.IntSliceVar(&v.Budgets, "validate-budgets", v.Budgets, "budgets at which validations measure hit rate and recall")
	f.IntVar(&v.Patience, "patience", v.Patience, "validations without a better loss after which the run stops; 0 goes on to the end")
	f.StringVar(&s.RunDir, "run", s.RunDir, "folder for the resolved configuration, the log, TensorBoard events, curves and, without --checkpoint, the state")
	f.StringVar(&s.Log, "log", s.Log, "JSONL file of every step's numbers")
	f.BoolVar(&s.Replace, "replace", s.Replace, "replace adapter folders that exist, and the records of an earlier run in --run")
	f.StringVar(&s.Checkpoint, "checkpoint", s.Checkpoint, "file that keeps the state of the run; it is written every --checkpoint-every steps and when the run is stopped")
	f.IntVar(&s.CheckpointEvery, "checkpoint-every", s.CheckpointEvery, "steps between checkpoints")
	s.bindStore(f)
	f.BoolVar(&s.resume, "resume", false, "go on from the checkpoint, if there is one, with the bits of a run that was never stopped")
}

// given are the flags that the user set, with their values.
type given struct {
	flag   *pflag.Flag
	values []string
}

// givenFlags notes what the command line says, so that it can be said again over a
// preset and a file.
func givenFlags(f *pflag.FlagSet) []given {
	var out []given
	f.Visit(func(x *pflag.Flag) {
		g := given{flag: x, values: []string{x.Value.String()}}
		if list, ok := x.Value.(pflag.SliceValue); ok {
			g.values = list.GetSlice()
		}
		out = append(out, g)
	})
	return out
}

// repeat sets the flags again.
func repeat(all []given) error {
	for _, g := range all {
		if list, ok := g.flag.Value.(pflag.SliceValue); ok {
			if err := list.Replace(g.values); err != nil {
				return err
			}
			continue
		}
		if err := g.flag.Value.Set(g.values[0]); err != nil {
			return fmt.Errorf("--%s: %w", g.flag.Name, err)
		}
	}
	return nil
}

func isGiven(all []given, names ...string) bool {
	return slices.ContainsFunc(all, func(g given) bool { return slices.Contains(names, g.flag.Name) })
}

// usePreset puts a preset's settings in the place of the defaults. It comes before
// the file and the flags that override it.
func (s *spec) usePreset(name string) error {
	p, err := training.Presets.Lookup(name)
	if err != nil {
		return err
	}
	seed, validation := s.Train.Seed, s.Train.Validation
	s.Train.Config = p.Config
	s.Train.Seed, s.Train.Validation = seed, validation
	s.Preset, s.Epochs, s.preset = name, p.Epochs, &p
	return nil
}

// read takes a configuration file over the defaults, and the flags that were given
// over both.
func (s *spec) read(path string, flags []given) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	// The preset is the ground for everything else, so it is found first.
	first := *s
	if err := yamlconfig.Decode(path, data, s.sets, &first); err != nil {
		return err
	}
	preset := first.Preset
	if isGiven(flags, "preset") {
		preset = s.Preset
	}
	if preset != "" {
		if err := s.usePreset(preset); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	const absent = math.MinInt
	epochs, steps := s.Epochs, s.Train.Steps
	s.Epochs, s.Train.Steps = 0, absent
	if err := yamlconfig.Decode(path, data, s.sets, s); err != nil {
		return err
	}
	if s.Train.Steps == absent {
		s.Train.Steps = steps
		if s.Epochs == 0 {
			s.Epochs = epochs
		}
	}
	if preset != "" {
		s.Preset = preset
	}
	if len(s.Train.Adapters) > 0 && len(s.Adapters) > 0 {
		return fmt.Errorf("%s: adapters and train.adapters: got both, want one of them", path)
	}
	if len(s.Adapters) == 0 {
		s.Adapters = s.Train.Adapters
	}
	s.Train.Adapters = nil
	s.presetAdapter()
	if err := repeat(flags); err != nil {
		return err
	}
	if isGiven(flags, "steps") && !isGiven(flags, "epochs") {
		s.Epochs = 0
	}
	return nil
}

// presetAdapter makes the preset's adapter, where none is named.
func (s *spec) presetAdapter() {
	if len(s.Adapters) == 0 && s.preset != nil {
		a := adapterSpec{}
		a.Defaults(func(string) string { return s.preset.Adapter.Kind })
		s.Adapters = []adapterSpec{a}
	}
}

// presetAlone is read without a file.
func (s *spec) presetAlone(flags []given) error {
	if err := s.usePreset(s.Preset); err != nil {
		return err
	}
	s.presetAdapter()
	if err := repeat(flags); err != nil {
		return err
	}
	if isGiven(flags, "steps") && !isGiven(flags, "epochs") {
		s.Epochs = 0
	}
	return nil
}

// bindSet adds the flag that reaches every key of a file.
func (s *spec) bindSet(f *pflag.FlagSet) {
	f.StringArrayVar(&s.sets, "set", nil, "KEY=VALUE in the place of what the file says, with a dotted key; may be repeated")
}

// folders settles where each adapter goes.
func (s *spec) folders(path string) error {
	named := 0
	for _, a := range s.Adapters {
		if a.Out != "" {
			named++
		}
	}
	switch {
	case named > 0 && len(s.Outs) > 0:
		return fmt.Errorf("%s: outs: got folders there and in adapters.out, want them in one place", path)
	case named > 0:
		for _, a := range s.Adapters {
			s.Outs = append(s.Outs, a.Out)
		}
	case len(s.Outs) == 0 && s.RunDir != "":
		for _, a := range s.Adapters {
			s.Outs = append(s.Outs, filepath.Join(s.RunDir, "adapters", a.name()))
		}
	}
	if len(s.Outs) != len(s.Adapters) {
		return fmt.Errorf("%s: outs: got %d folders for %d adapters", path, len(s.Outs), len(s.Adapters))
	}
	for i, dir := range s.Outs {
		if dir == "" {
			return fmt.Errorf("%s: outs: folder %d of %d is empty", path, i+1, len(s.Outs))
		}
	}
	return nil
}

// name is the adapter's, or its kind's where it has none.
func (a *adapterSpec) name() string {
	if a.Name != "" {
		return a.Name
	}
	return a.Kind
}
