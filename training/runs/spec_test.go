package runs

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "glimpse/gates"
	_ "glimpse/lora"
	"glimpse/model"
	_ "glimpse/softtokens"
	"glimpse/training"
)

// commandLine is what flags say, by name.
type commandLine map[string]func()

func (c commandLine) Given(name string) bool { return c[name] != nil }

func (c commandLine) Repeat() error {
	for _, set := range c {
		set()
	}
	return nil
}

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAdapterDefaults: what an adapter of a file leaves out is its paper's, whatever comes
// first in the file. A kind whose paper tells nothing has the shape of the kind it is like; an unknown one has none.
func TestAdapterDefaults(t *testing.T) {
	s := Default()
	if err := s.Read(written(t, `
adapters:
  - {kind: lookaheadkv}
  - {rank: 2, kind: lookaheadkv, modules: none}
  - {kind: judgeq, rows: 5}
  - {kind: restorekv, rank: 4}
  - {kind: unheard}
`), commandLine{}); err != nil {
		t.Fatal(err)
	}
	type shape struct {
		rows, rank, modules int
		alpha               float64
	}
	want := []shape{{32, 8, 7, 32}, {32, 0, 0, 0}, {5, 0, 0, 0}, {32, 4, 7, 32}, {}}
	if len(s.Adapters) != len(want) {
		t.Fatalf("%d adapters, want %d", len(s.Adapters), len(want))
	}
	for i := range want {
		c := s.Adapters[i].Config()
		if got := (shape{c.Rows, c.Rank, len(c.Modules), c.Alpha}); got != want[i] {
			t.Errorf("adapter %d: %+v, want %+v", i, got, want[i])
		}
		if c.Pooling != resolvedPooling || c.LearningRate != 0 {
			t.Errorf("adapter %d: pooling %d and rate %g before the model is known", i, c.Pooling, c.LearningRate)
		}
	}
}

// TestPrecedence: defaults, preset, file, --set and flags, each over the one before; and
// whoever names steps last has ended epochs.
func TestPrecedence(t *testing.T) {
	for name, c := range map[string]struct {
		file          string
		sets          []string
		flags         func(s *Spec) commandLine
		steps, epochs int
		batch         int
		adapter       string
	}{
		"defaults":           {file: "{}", steps: Default().Train.Steps, batch: Default().Train.Batch},
		"preset":             {file: "preset: judgeq", steps: 4688, epochs: 3, batch: 32, adapter: "judgeq"},
		"file":               {file: "preset: judgeq\ntrain: {batch: 5}", steps: 4688, epochs: 3, batch: 5, adapter: "judgeq"},
		"steps of a file":    {file: "preset: judgeq\ntrain: {steps: 9}", steps: 9, batch: 32, adapter: "judgeq"},
		"epochs of a file":   {file: "preset: judgeq\nepochs: 2", steps: 4688, epochs: 2, batch: 32, adapter: "judgeq"},
		"set":                {file: "train: {batch: 5}", sets: []string{"train.batch=6"}, steps: Default().Train.Steps, batch: 6},
		"adapter over paper": {file: "preset: judgeq\nadapters: [{kind: lookaheadkv}]", steps: 4688, epochs: 3, batch: 32, adapter: "lookaheadkv"},
		"flags": {file: "preset: judgeq\ntrain: {batch: 5}", flags: func(s *Spec) commandLine {
			return commandLine{"batch": func() { s.Train.Batch = 7 }, "steps": func() { s.Train.Steps = 11 }}
		}, steps: 11, batch: 7, adapter: "judgeq"},
		"both flags": {file: "preset: judgeq", flags: func(s *Spec) commandLine {
			return commandLine{"epochs": func() { s.Epochs = 4 }, "steps": func() { s.Train.Steps = 11 }}
		}, steps: 11, epochs: 4, batch: 32, adapter: "judgeq"},
		"preset of a flag": {file: "preset: lookaheadkv", flags: func(s *Spec) commandLine {
			s.Preset = "judgeq"
			return commandLine{"preset": func() {}}
		}, steps: 4688, epochs: 3, batch: 32, adapter: "judgeq"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Default()
			s.Sets = c.sets
			flags := commandLine{}
			if c.flags != nil {
				flags = c.flags(s)
			}
			if err := s.Read(written(t, c.file), flags); err != nil {
				t.Fatal(err)
			}
			adapter := ""
			for _, a := range s.Adapters {
				adapter += a.Kind
			}
			if s.Train.Steps != c.steps || s.Epochs != c.epochs || s.Train.Batch != c.batch || adapter != c.adapter {
				t.Errorf("steps %d, epochs %d, batch %d, adapter %q; want %d, %d, %d, %q", s.Train.Steps, s.Epochs, s.Train.Batch, adapter, c.steps, c.epochs, c.batch, c.adapter)
			}
		})
	}
}

// TestPresetOfTheOther: a preset for another kind of adapter is refused, one for this kind
// leaves the rate to the model.
func TestPresetOfTheOther(t *testing.T) {
	a := Adapter{}
	a.Kind, a.LearningRate = "judgeq", 1
	s := Default()
	s.Preset = "lookaheadkv"
	if err := s.ReadAdapter(&a, "out", commandLine{}); err == nil || !strings.Contains(err.Error(), "for adapters of kind lookaheadkv, want one for judgeq") {
		t.Errorf("error %v", err)
	}
	s = Default()
	s.Preset, s.Train.Seed = "judgeq", 9
	if err := s.ReadAdapter(&a, "out", commandLine{}); err != nil {
		t.Fatal(err)
	}
	if got := s.Adapters[0]; got.LearningRate != 0 || got.Seed != 9 || !slices.Equal(s.Outs, TextList{"out"}) || s.Train.Batch != 32 {
		t.Errorf("adapter %+v in %v, batches of %d", got, s.Outs, s.Train.Batch)
	}
}

// TestFolders: adapters' folders are named in one place, are one for each, or are made of
// the run's and the adapters' names.
func TestFolders(t *testing.T) {
	two := []Adapter{{}, {}}
	two[0].Kind, two[1].Kind, two[1].Name = "judgeq", "judgeq", "second"
	out := func(dirs ...string) []Adapter {
		a := slices.Clone(two)
		for i, dir := range dirs {
			a[i].Out = dir
		}
		return a
	}
	for name, c := range map[string]struct {
		spec  Spec
		want  []string
		fails string
	}{
		"of the run":   {spec: Spec{RunDir: "r", Adapters: two}, want: []string{"r/adapters/judgeq", "r/adapters/second"}},
		"listed":       {spec: Spec{RunDir: "r", Outs: TextList{"a", "b"}, Adapters: two}, want: []string{"a", "b"}},
		"of adapters":  {spec: Spec{Adapters: out("x", "y")}, want: []string{"x", "y"}},
		"two places":   {spec: Spec{Outs: TextList{"a", "b"}, Adapters: out("x", "y")}, fails: "want them in one place"},
		"one of two":   {spec: Spec{Adapters: out("x", "")}, fails: "folder 2 of 2 is empty"},
		"too few":      {spec: Spec{Outs: TextList{"a"}, Adapters: two}, fails: "got 1 folders for 2 adapters"},
		"none":         {spec: Spec{Adapters: two}, fails: "got 0 folders for 2 adapters"},
		"empty folder": {spec: Spec{Outs: TextList{"a", ""}, Adapters: two}, fails: "folder 2 of 2 is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.spec.Folders("c.yaml")
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || !strings.HasPrefix(err.Error(), "c.yaml: ") {
					t.Fatalf("error %v, want it to say %q", err, c.fails)
				}
				return
			}
			if err != nil || !slices.Equal([]string(c.spec.Outs), c.want) {
				t.Errorf("%q (%v), want %q", c.spec.Outs, err, c.want)
			}
		})
	}
}

// TestScalars: values that are a word in a file and in flags are written as they are read.
func TestScalars(t *testing.T) {
	for text, want := range map[string]InitToken{"-1": -1, "0": 0, "7": 7, "end": initEnd} {
		var got InitToken
		if err := got.Set(text); err != nil || got != want || got.String() != text {
			t.Errorf("token %s: %d, written %s (%v)", text, got, got.String(), err)
		}
	}
	for _, text := range []string{"", "-2", "07", "7x", "1e3", "99999999999"} {
		var got InitToken
		if err := got.Set(text); err == nil || !strings.Contains(err.Error(), "want a token id, -1 for random rows, or end") {
			t.Errorf("token %q: %d, error %v", text, got, err)
		}
	}
	for text, want := range map[string]ModuleList{
		"none": nil, "qv": {model.QProj, model.VProj}, "all": ModuleList(model.Modules), "q_proj,up_proj": {model.QProj, model.UpProj},
		"experts": ModuleList(model.ExpertModules), "all,experts": ModuleList(model.FactorModules), "qv,experts": {model.QProj, model.VProj, model.ExpertGate, model.ExpertUp, model.ExpertDown},
		"q_proj,v_proj,up_proj": {model.QProj, model.VProj, model.UpProj}, "o_proj,experts.down_proj": {model.OProj, model.ExpertDown},
	} {
		var got, again ModuleList
		if err := got.Set(text); err != nil || !slices.Equal(got, want) || got.String() != text {
			t.Errorf("modules %s: %v, written %s (%v)", text, got, got.String(), err)
		}
		data, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if string(data) == `"none"` {
			err = again.SetScalar("none")
		} else {
			err = json.Unmarshal(data, (*[]model.Module)(&again))
		}
		if err != nil || !slices.Equal(again, want) {
			t.Errorf("modules %s: written %s, read %v (%v)", text, data, again, err)
		}
	}
	for text, want := range map[string]string{
		"router": "a router has no factors", "q,shared_expert": "the expert that all rows go through has no factors", "all,q": `module "q_proj" twice`, "experts.zz": "unknown module",
	} {
		var got ModuleList
		if err := got.Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("modules %s: %v, error %v, want %q", text, got, err, want)
		}
	}
	var list TextList
	if err := list.SetScalar("one"); err != nil || !slices.Equal(list, TextList{"one"}) {
		t.Errorf("list %q (%v)", list, err)
	}
	if err := list.SetScalar(""); err != nil || len(list) != 0 {
		t.Errorf("an empty text is %q (%v)", list, err)
	}
}

// TestGrid: the points of a sweep are rows by modules by rates, in this order, and an axis
// that is left out has the adapter's value.
func TestGrid(t *testing.T) {
	base := Adapter{Modules: ModuleList{model.QProj, model.VProj}}
	base.Kind, base.Rows, base.LearningRate, base.Out = "lookaheadkv", 4, 0.5, "elsewhere"
	spec := func(g *Grid) *Spec {
		s := Default()
		s.RunDir, s.Adapters, s.Sweep = "r", []Adapter{base}, g
		s.Train.Validation.Samples = 1
		return s
	}
	got, err := spec(&Grid{Rows: []int{2, 8}, LearningRate: []float64{1e-3, 0.1}}).grid()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range got {
		names = append(names, a.Name)
		if a.Out != "" || !slices.Equal(a.Modules, base.Modules) {
			t.Errorf("%s: folder %q, modules %v", a.Name, a.Out, a.Modules)
		}
	}
	want := []string{"lookaheadkv-n2-qv-lr0.001", "lookaheadkv-n2-qv-lr0.1", "lookaheadkv-n8-qv-lr0.001", "lookaheadkv-n8-qv-lr0.1"}
	if !slices.Equal(names, want) {
		t.Errorf("points %q, want %q", names, want)
	}
	if one, err := spec(&Grid{}).grid(); err != nil || len(one) != 1 || one[0].Rows != 4 || one[0].LearningRate != 0.5 {
		t.Errorf("an empty grid is %+v (%v), want the adapter", one, err)
	}
	for name, c := range map[string]struct {
		change func(s *Spec)
		want   string
	}{
		"missing":       {func(s *Spec) { s.Sweep = nil }, "sweep: missing"},
		"two adapters":  {func(s *Spec) { s.Adapters = append(s.Adapters, base) }, "got 2 adapters"},
		"no folder":     {func(s *Spec) { s.RunDir = "" }, "run is missing"},
		"no validation": {func(s *Spec) { s.Train.Validation.Samples = 0 }, "validation of 0 samples"},
		"passes":        {func(s *Spec) { s.Sweep.PerPass = -1 }, "per_pass: got -1"},
		"twice":         {func(s *Spec) { s.Sweep.Rows = []int{3, 3} }, "lookaheadkv-n3-qv-lr0.5 twice"},
		"too many":      {func(s *Spec) { s.Sweep.Rows = make([]int, maxGrid+1) }, "a grid of 10001 points"},
		"name":          {func(s *Spec) { s.Adapters[0].Name = "../up" }, "../up"},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(&Grid{})
			c.change(s)
			if _, err := s.grid(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want it to say %q", err, c.want)
			}
		})
	}
}

// TestOutputsDistinct: a run writes no two of its outputs into one file.
func TestOutputsDistinct(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, c := range map[string]struct {
		change func(s *Spec)
		want   string
	}{
		"log and checkpoint":           {func(s *Spec) { s.RunDir, s.Log, s.Checkpoint = "", "x", "./x" }, "--log: x is the file of --checkpoint, too"},
		"log and the run's checkpoint": {func(s *Spec) { s.RunDir, s.Log = "run", "run/../run/"+training.StateName }, "is the file of --checkpoint, too"},
		"adapter and log":              {func(s *Spec) { s.RunDir, s.Log, s.Outs[1] = "", must(filepath.Abs("b")), "b" }, "--out: b is the file of --log, too"},
		"adapter and run":              {func(s *Spec) { s.RunDir, s.Outs[0] = "run", "run" }, "--out: run is the file of --run, too"},
		"two adapters":                 {func(s *Spec) { s.RunDir, s.Outs = "", []string{"x/../a/", "./a"} }, "--out: ./a is the file of --out, too"},
	} {
		s := small("")
		s.Outs = []string{"a", "ab"}
		c.change(s)
		if err := s.Run(t.Context(), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, error %v", name, left, err)
		}
	}
}

func TestOwnFolder(t *testing.T) {
	s := Spec{RunDir: "run"}
	for dir, want := range map[string]bool{"run/a": true, "run/a/../b": true, "run/../a": false, "runs/a": false} {
		if got := s.ownFolder(dir); got != want {
			t.Errorf("%q is the run's own: %v, want %v", dir, got, want)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestResolveAdapters: what a file leaves open comes from the number of samples, the last
// token of the prompts, the seed and the preset.
func TestResolveAdapters(t *testing.T) {
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := Default()
	if err := s.Read(written(t, "preset: judgeq\nepochs: 3\ntrain: {batch: 4}\nadapters: [{kind: judgeq, init_token: end}, {kind: lookaheadkv, name: b, seed: 5, learning_rate: 0.25}]"), commandLine{}); err != nil {
		t.Fatal(err)
	}
	s.Train.Seed = 11
	if err := s.resolveAdapters(m, 10, 77); err != nil {
		t.Fatal(err)
	}
	if want := int(math.Ceil(3 * 10 / 4.0)); s.Train.Steps != want || s.Epochs != 0 {
		t.Errorf("%d steps and %d epochs, want %d steps", s.Train.Steps, s.Epochs, want)
	}
	a, b := s.Train.Config.Adapters[0], s.Train.Config.Adapters[1]
	if a.Name != "judgeq" || a.InitToken != 77 || a.Seed != 11 || a.Pooling != 1 || !(a.LearningRate > 0) {
		t.Errorf("first adapter %+v", a)
	}
	if b.Name != "b" || b.InitToken != -1 || b.Seed != 5 || b.LearningRate != 0.25 {
		t.Errorf("second adapter %+v", b)
	}
	s = Default()
	s.Epochs = 2
	if err := s.resolveAdapters(m, 0, 0); err == nil || !strings.Contains(err.Error(), "synthetic prompts have no end") {
		t.Errorf("epochs without data: %v", err)
	}
	s.Epochs = -1
	if err := s.resolveAdapters(m, 10, 0); err == nil || !strings.Contains(err.Error(), "epochs: got -1") {
		t.Errorf("epochs below 0: %v", err)
	}
}
