package runs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/internal/bytesize"
	"glimpse/internal/collective"
	"glimpse/internal/outputs"
	"glimpse/jobs"
	"glimpse/model"
	"glimpse/training"
)

// Spec is a training run as a file and flags describe it. Its json tags are the keys
// of the file, and of the resolved configuration that is written beside the results.
type Spec struct {
	Preset     string   `json:"preset,omitempty"`   // hyper-parameters of a paper, which all other keys override
	Model      string   `json:"model"`              // folder; "" is the built-in model
	Device     string   `json:"device"`             // where to compute
	CacheDType string   `json:"cache_dtype"`        // of keys and values: auto, float32 or bf16
	Data       TextList `json:"data,omitempty"`     // pair files, or folders or s3:// names of them, or texts (see texts); none draws synthetic prompts
	HeldOut    TextList `json:"held_out,omitempty"` // pair files to validate on; none takes some of data
	Tasks      string   `json:"tasks"`              // synthetic tasks
	Tokens     int      `json:"tokens"`             // prompt length of the synthetic tasks
	Shortest   int      `json:"shortest"`           // tokens of a prompt that is a part of a text, at least
	Longest    int      `json:"longest"`            // and at most
	Heads      string   `json:"heads,omitempty"`    // file with budgets of heads, whose shares weigh them; "" is what ships for the model
	Outs       TextList `json:"outs"`               // adapter folders, one per adapter
	RunDir     string   `json:"run,omitempty"`      // folder for configuration, logs, curves and state
	Log        string   `json:"log,omitempty"`      // JSONL of every step's numbers
	Replace    bool     `json:"replace"`            // adapter folders that exist

	Checkpoint      string `json:"checkpoint,omitempty"` // file that keeps the state of the run
	CheckpointEvery int    `json:"checkpoint_every"`     // steps

	Upload string               `json:"upload,omitempty"` // folder or s3:// name for checkpoints
	Export string               `json:"export,omitempty"` // and for the adapters
	S3     objectstore.Settings `json:"s3,omitzero"`

	Workers     int           `json:"workers"`      // samples worked on at the same time; 0 chooses
	CacheMemory bytesize.Size `json:"cache_memory"` // bytes of repeated samples kept in memory
	CacheDisk   bytesize.Size `json:"cache_disk"`   // and, beyond that, on disk

	Epochs   int       `json:"epochs,omitempty"` // times through the data, in the place of steps
	Train    Settings  `json:"train"`
	Adapters []Adapter `json:"adapters,omitempty"`
	Sweep    *Grid     `json:"sweep,omitempty"` // of "train sweep"

	// What a run came to, per adapter.
	metrics []map[string]float64
	sizes   []int

	// Resume goes on from the checkpoint, if there is one.
	Resume bool `json:"-"`
	// AcceptChangedData lets it do so on data that have changed.
	AcceptChangedData bool `json:"-"`
	// Sets are KEY=VALUE in the place of a file's values.
	Sets []string `json:"-"`

	preset *training.Preset
	ranks  collective.Group // while a run goes on
}

// Settings is training.Config with the list of adapters as files may also have it.
type Settings struct {
	training.Config
	Adapters []Adapter `json:"adapters,omitempty"`
}

// Adapter is an adapter of a file.
type Adapter struct {
	training.AdapterConfig
	Modules ModuleList `json:"modules"`
	// InitToken also takes "end": the last token of the first prompt.
	InitToken InitToken `json:"init_token"`
	Out       string    `json:"out,omitempty"` // folder, instead of outs
}

// resolvedPooling stands for the kernel that fits the model: 1 for the built-in one,
// whose facts are single tokens, else the paper's.
const resolvedPooling = 0

// Defaults implements yamlconfig.Defaulter: what an adapter leaves out is as in its
// paper, but for the learning rate, which only a preset gives.
func (a *Adapter) Defaults(value func(key string) string) {
	p, err := training.Presets.Lookup(value("kind"))
	if err != nil {
		kind, _ := model.RowsKinds.Lookup(value("kind")) // an unknown one is named by Validate
		p.Adapter = training.AdapterConfig{Kind: value("kind"), AdapterConfig: kind.Start}
	}
	a.AdapterConfig = p.Adapter
	a.Modules, a.AdapterConfig.Modules = p.Adapter.Modules, nil
	a.InitToken = InitToken(p.Adapter.InitToken)
	a.Pooling = resolvedPooling
	if m := value("modules"); m == "none" {
		a.Rank, a.Alpha = 0, 0
	}
}

// Config is the adapter as the trainer takes it.
func (a *Adapter) Config() training.AdapterConfig {
	c := a.AdapterConfig
	c.Modules, c.InitToken = a.Modules, int32(a.InitToken)
	if len(c.Modules) == 0 {
		c.Modules, c.Rank, c.Alpha = nil, 0, 0
	}
	return c
}

// TextList is a list of texts that may also be a single one.
type TextList []string

// SetScalar implements yamlconfig.Scalar.
func (t *TextList) SetScalar(text string) error {
	*t = nil
	if text != "" {
		*t = TextList{text}
	}
	return nil
}

// ModuleList also takes all, qv, none, experts and comma-separated names.
type ModuleList []model.Module

// SetScalar implements yamlconfig.Scalar.
func (m *ModuleList) SetScalar(text string) (err error) {
	*m, err = model.ParseModules(text)
	return err
}

// MarshalJSON writes what SetScalar or a list of names reads back: an empty list would
// be lost among defaults.
func (m ModuleList) MarshalJSON() ([]byte, error) {
	if len(m) == 0 {
		return []byte(`"none"`), nil
	}
	return json.Marshal([]model.Module(m))
}

func (m *ModuleList) Set(text string) error { return m.SetScalar(text) }
func (m *ModuleList) Type() string          { return "list" }
func (m *ModuleList) String() string {
	if len(*m) == 0 {
		return "none"
	}
	rest, names := []model.Module(*m), []string(nil)
	for _, set := range []struct {
		name    string
		modules []model.Module
	}{{"all", model.Modules}, {"qv", []model.Module{model.QProj, model.VProj}}, {"experts", model.ExpertModules}} {
		if len(rest) >= len(set.modules) && slices.Equal(rest[:len(set.modules)], set.modules) && (len(rest) == len(set.modules) || slices.Equal(rest[len(set.modules):], model.ExpertModules)) {
			names, rest = append(names, set.name), rest[len(set.modules):]
		}
	}
	for _, x := range rest {
		names = append(names, string(x))
	}
	return strings.Join(names, ",")
}

// InitToken is a token id, -1 for none, or initEnd.
type InitToken int32

const initEnd InitToken = -2

// SetScalar implements yamlconfig.Scalar.
func (t *InitToken) SetScalar(text string) error {
	if text == "end" {
		*t = initEnd
		return nil
	}
	var id int32
	if _, err := fmt.Sscanf(text, "%d", &id); err != nil || fmt.Sprint(id) != text || id < -1 {
		return fmt.Errorf("got %q, want a token id, -1 for random rows, or end", text)
	}
	*t = InitToken(id)
	return nil
}

func (t *InitToken) Set(text string) error { return t.SetScalar(text) }
func (t *InitToken) Type() string          { return "id" }
func (t *InitToken) String() string {
	if *t == initEnd {
		return "end"
	}
	return fmt.Sprint(int32(*t))
}

// Default holds what neither file nor flags need to say.
func Default() *Spec {
	c := training.DefaultConfig()
	c.Seed = 1
	return &Spec{Device: "cpu", CacheDType: "auto", Tasks: "all", Tokens: 512, Shortest: 256, Longest: 2048, CheckpointEvery: 100, Train: Settings{Config: c}}
}

// usePreset puts a preset's settings in the place of the defaults. It comes before
// the file and the flags that override it.
func (s *Spec) usePreset(name string) error {
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

// Overrides is what a command line says over a preset and a file.
type Overrides interface {
	// Given tells that the flag of a name was given.
	Given(name string) bool
	// Repeat sets all that were given again.
	Repeat() error
}

// Read takes a configuration file over the defaults, and what the command line says over
// both.
func (s *Spec) Read(path string, flags Overrides) error {
	const absent = math.MinInt
	var preset string
	var epochs, steps int
	return jobs.Read(path, s.Sets, s, new(outputs.Files), func(said *Spec) error {
		if preset = said.Preset; flags.Given("preset") {
			preset = s.Preset
		}
		if preset != "" {
			if err := s.usePreset(preset); err != nil {
				return err
			}
		}
		epochs, steps = s.Epochs, s.Train.Steps
		s.Epochs, s.Train.Steps = 0, absent
		return nil
	}, func() error {
		if s.Train.Steps == absent {
			s.Train.Steps = steps
			s.Epochs = cmp.Or(s.Epochs, epochs)
		}
		s.Preset = cmp.Or(preset, s.Preset)
		if len(s.Train.Adapters) > 0 && len(s.Adapters) > 0 {
			return fmt.Errorf("%s: adapters and train.adapters: got both, want one of them", path)
		}
		if len(s.Adapters) == 0 {
			s.Adapters = s.Train.Adapters
		}
		s.Train.Adapters = nil
		s.presetAdapter()
		return s.override(flags)
	})
}

// override repeats the command line. Steps that it names stand instead of epochs.
func (s *Spec) override(flags Overrides) error {
	if err := flags.Repeat(); err != nil {
		return err
	}
	if flags.Given("steps") && !flags.Given("epochs") {
		s.Epochs = 0
	}
	return nil
}

// presetAdapter makes the preset's adapter, where none is named.
func (s *Spec) presetAdapter() {
	if len(s.Adapters) == 0 && s.preset != nil {
		a := Adapter{}
		a.Defaults(func(string) string { return s.preset.Adapter.Kind })
		s.Adapters = []Adapter{a}
	}
}

// ReadPreset is Read without a file.
func (s *Spec) ReadPreset(flags Overrides) error {
	if err := s.usePreset(s.Preset); err != nil {
		return err
	}
	s.presetAdapter()
	return s.override(flags)
}

// ReadAdapter is Read without a file, for the one adapter that the command line describes. It
// goes to the folder out.
func (s *Spec) ReadAdapter(a *Adapter, out string, flags Overrides) error {
	if s.Preset != "" {
		if p, err := training.Presets.Lookup(s.Preset); err == nil && p.Adapter.Kind != a.Kind {
			return fmt.Errorf("--preset %s: for adapters of kind %s, want one for %s", s.Preset, p.Adapter.Kind, a.Kind)
		}
		if err := s.usePreset(s.Preset); err != nil {
			return fmt.Errorf("--preset: %w", err)
		}
		a.LearningRate = 0 // the preset's, which depends on the model
		if err := s.override(flags); err != nil {
			return err
		}
	}
	a.Seed = s.Train.Seed
	s.Adapters, s.Outs = []Adapter{*a}, TextList{out}
	return nil
}

// Folders says where each adapter goes.
func (s *Spec) Folders(path string) error {
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
func (a *Adapter) name() string { return cmp.Or(a.Name, a.Kind) }
