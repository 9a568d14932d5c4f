package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/evaluation"
	"glimpse/internal/atomicfile"
	"glimpse/internal/listing"
	"glimpse/internal/outputs"
	"glimpse/internal/regularfile"
	"glimpse/internal/stdin"
	"glimpse/internal/version"
	"glimpse/internal/yamlconfig"
	"glimpse/kernels"

	"go.yaml.in/yaml/v3"
)

// Files of a run's folder.
const (
	PredictionsFile = "predictions.jsonl" // a line for every sample and cell, in their order
	MetricsFile     = "metrics.json"      // what they come to; the run is finished where it is there
	TimingsFile     = "timings.json"      // which differ from run to run
	ConfigFile      = "config.yaml"       // the job with all that was left to defaults
	EnvironmentFile = "environment.json"  // versions, machine, models and the settings of every policy
	KeptFile        = "kept.jsonl"        // what is kept of the first prompts, a line for each

	partialFile = "predictions.partial.jsonl" // predictions as they come
)

// folder is the output of a run. One without a path takes nothing. Until a sample is measured there is
// nothing in it but the lock, and what was there before: see beginFiles.
type folder struct {
	path    string
	made    []string // folders that were made for it, outermost first
	unlock  func()
	partial *os.File // nil: the run has not begun to write
	kept    *os.File
	keeping sync.Mutex               // lines of kept, and waiting
	waiting []byte                   // lines of kept of before
	anew    bool                     // what the folder holds of a run is removed
	before  []*evaluation.Prediction // of the run that is continued
	from    string                   // the file that they are in, "" for none
	whole   int64                    // bytes of it that are
	config  []byte
	about   Environment
	begun   *Environment // of the run that is continued, where it has one
	again   string       // what a stopped run goes on with
	agree   func() error // with the other workers on shards; nil: there are none
}

// Environment is what EnvironmentFile holds.
type Environment struct {
	Schema  string       `json:"schema"`
	Glimpse string       `json:"glimpse"`
	Go      string       `json:"go"`
	System  string       `json:"system"`
	Models  []AboutModel `json:"models"`
	// Accepted says what of the data was not, or is not known to be, what the run was begun with.
	Accepted []string `json:"accepted,omitempty"`
}

// AboutModel is a model that was measured.
type AboutModel struct {
	Name   string `json:"name"`
	SHA256 string `json:"weights_sha256"`
	HashOf string `json:"weights_sha256_of,omitempty"` // "tensors"; in runs of earlier versions "", the files
	// Companions are the adapters and draft models, by their names.
	Companions datasets.Contents `json:"companions,omitempty"`
	Device     string            `json:"device"` // on a processor with the arithmetic; several with commas between
	Policies   []AboutPolicy     `json:"policies"`
}

// AboutPolicy is a policy that took part, with its options.
type AboutPolicy struct {
	Policy   string             `json:"policy"`
	Adapter  string             `json:"adapter,omitempty"`
	Settings map[string]float64 `json:"settings,omitempty"`
}

// The versions of the files.
const (
	environmentSchema = "glimpse.environment/1"
	timingsSchema     = "glimpse.timings/1"
)

// openFolder opens the output before any work is done: a new folder, or one that is
// continued.
func (j *Job) openFolder(log io.Writer) (_ *folder, err error) {
	again := "--resume"
	if j.Files.Any() {
		again += " --replace" // replaces the files of earlier measurements
	}
	f := &folder{path: j.Out, again: again, agree: j.agreeing, about: Environment{Schema: environmentSchema, Glimpse: version.String(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}}
	if f.config, err = j.config(); err != nil {
		return nil, err
	}
	if j.Out == "" {
		if j.Resume {
			return nil, errors.New("--resume needs --out, the folder of the run")
		}
		return f, nil
	}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.made, err = makeFolders(j.Out); err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	if f.unlock, err = outputs.Lock(filepath.Join(j.Out, partialFile)); err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	return f, j.claim(f, log)
}

// makeFolders makes a folder and those that it is in, and returns the ones that were not there.
func makeFolders(path string) (made []string, err error) {
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		made = append(made, dir)
	}
	slices.Reverse(made)
	return made, os.MkdirAll(path, 0o777)
}

// beginFiles opens the files of the run when the first sample is measured, so that a run that fails before
// leaves the folder as it was.
func (f *folder) beginFiles() error {
	if f.partial != nil {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("--out: %w", err) }
	if f.agree != nil {
		if err := f.agree(); err != nil {
			return fail(err)
		}
	}
	if f.anew {
		for _, name := range []string{MetricsFile, PredictionsFile, TimingsFile, EnvironmentFile, KeptFile, JudgementsFile, partialFile, ConfigFile} {
			if err := os.Remove(f.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fail(err)
			}
		}
	}
	// First, so that a folder with anything in it is known as a run's.
	if err := f.writeFile(ConfigFile, f.config); err != nil {
		return fail(err)
	}
	switch f.from {
	case partialFile:
		if err := os.Truncate(f.file(partialFile), f.whole); err != nil {
			return fail(err)
		}
	case PredictionsFile: // a finished run that is extended: its predictions are the first of the new one's
		data, err := os.ReadFile(f.file(PredictionsFile))
		if err == nil {
			err = f.writeFile(partialFile, data[:f.whole])
		}
		if err != nil {
			return fail(err)
		}
	}
	if f.about.Models != nil {
		if err := f.writeAbout(); err != nil {
			return fail(err)
		}
	}
	if err := errors.Join(f.openKept(), f.openPartial()); err != nil {
		return fail(err)
	}
	if len(f.waiting) > 0 {
		if _, err := f.kept.Write(f.waiting); err != nil {
			return fail(err)
		}
	}
	f.waiting = nil
	return nil
}

func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// claim finds out what the folder holds: nothing, a run that goes on, or what must not be
// lost.
func (j *Job) claim(f *folder, log io.Writer) error {
	old, err := regularfile.Read(f.file(ConfigFile), yamlconfig.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := os.ReadDir(f.path)
		if err != nil {
			return fmt.Errorf("--out: %w", err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") {
				return fmt.Errorf("--out: %s holds %s and no run, want a new or empty folder", f.path, e.Name())
			}
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	damage, err := f.readLines()
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if f.anew = j.Files.Replace && !j.Resume || damage == nil && !slices.ContainsFunc(f.before, (*evaluation.Prediction).Measured); f.anew {
		f.before, f.from = nil, ""
		return nil
	}
	if !j.Resume {
		return fmt.Errorf("--out: %s holds a run: go on with it with --resume, or begin anew with --replace", f.path)
	}
	note, err := j.continues(old, f.config)
	if err != nil {
		return fmt.Errorf("--resume: %s: %w", f.file(ConfigFile), err)
	}
	if len(j.added) > 0 {
		fmt.Fprintf(log, "added to the run in %s: %s; what is there of others is not measured again\n", f.path, strings.Join(j.added, ", "))
	}
	var begun Environment
	found, err := readVersioned(f.file(EnvironmentFile), &begun, &begun.Schema, environmentSchema)
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	if found {
		f.begun, f.about.Accepted = &begun, begun.Accepted
	}
	if note != "" {
		fmt.Fprintln(log, note)
		f.about.accept([]string{note})
	}
	if damage != nil {
		fmt.Fprintf(log, "%s: %v: measured again from there\n", f.file(f.from), damage)
	}
	return nil
}

// readLines reads the predictions there are. A line that a kill has cut, or that is damaged,
// and all after it are not among them.
func (f *folder) readLines() (damage, err error) {
	in, from, err := openPredictions(f.path)
	f.from = from
	if err != nil || in == nil {
		return nil, err
	}
	defer in.Close()
	if f.before, f.whole, damage, err = evaluation.ReadPredictions(in, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", f.file(f.from), err)
	}
	return damage, nil
}

// sink is where predictions go.
func (f *folder) sink() io.Writer {
	if f.path == "" {
		return nil
	}
	return f
}

// Write adds predictions.
func (f *folder) Write(lines []byte) (int, error) {
	f.keeping.Lock()
	err := f.beginFiles()
	f.keeping.Unlock()
	if err != nil {
		return 0, err
	}
	return f.partial.Write(lines)
}

// openPartial opens the predictions as they come.
func (f *folder) openPartial() (err error) {
	f.partial, err = os.OpenFile(f.file(partialFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	return err
}

// retain drops from a continued run the samples whose lines are not of
// the cells, and says so. It returns how many samples need no work.
func (f *folder) retain(results *evaluation.Results, model string, work []evaluation.Work, cells []evaluation.Cell, log io.Writer) (done int, err error) {
	done, again, keep := results.Retain(model, work, cells)
	if len(again) == 0 {
		return done, nil
	}
	fmt.Fprintf(log, "%s: %d samples, the first %s: their lines are not those of the policies and budgets in their order: measured again\n", f.file(f.from), len(again), again[0])
	if err := f.beginFiles(); err != nil {
		return 0, err
	}
	all, err := readFinished(f.file(partialFile))
	if err != nil {
		return 0, err
	}
	var lines bytes.Buffer
	if err := evaluation.WritePredictions(&lines, slices.DeleteFunc(all, func(p *evaluation.Prediction) bool { return !keep(p) })); err != nil {
		return 0, err
	}
	if err := errors.Join(f.partial.Close(), f.writeFile(partialFile, lines.Bytes())); err != nil {
		return 0, err
	}
	return done, f.openPartial()
}

// describeRun takes down what is measured, which must be what the run was begun with.
func (f *folder) describeRun(ctx context.Context, m *engine.Model, policies []engine.Policy, log io.Writer) error {
	if f.path == "" {
		return nil
	}
	hash, err := m.SHA256(ctx)
	if err != nil {
		return err
	}
	companions, err := m.Companions(ctx)
	if err != nil {
		return err
	}
	if was := f.begun.model(m.Name); was != nil {
		known, err := m.KnownAs(ctx, was.SHA256)
		if err != nil {
			return err
		}
		if known != was.SHA256 {
			return fmt.Errorf("--resume: %s: model %s: the weights have changed since the run was begun: SHA-256 %.12s…, want %.12s…", f.file(EnvironmentFile), m.Name, hash, was.SHA256)
		}
		old := slices.DeleteFunc(slices.Clone(companions), func(c datasets.Content) bool { // what was added is for cells that were
			return !slices.ContainsFunc(was.Companions, func(o datasets.Content) bool { return o.File == c.File })
		})
		if changes := old.Differences(was.Companions); was.Companions != nil && changes != "" {
			return fmt.Errorf("--resume: %s: model %s: adapters or drafts have changed since the run was begun: %s", f.file(EnvironmentFile), m.Name, changes)
		}
	}
	device := kernels.DeviceOf(m.Backend)
	if was := f.begun.model(m.Name); was != nil && was.Device != device && was.Device != m.Backend.Name() { // which is all that earlier versions say
		fmt.Fprintf(log, "--resume: model %s was on %s and goes on on %s: where two tokens are nearly as likely, rounding may decide otherwise\n", m.Name, was.Device, device)
		device = bothDevices(was.Device, device)
	}
	f.about.Models = append(f.about.Models, AboutModel{Name: m.Name, SHA256: hash, HashOf: hashOfTensors, Companions: companions, Device: device, Policies: aboutPolicies(policies)})
	if f.partial == nil {
		return nil
	}
	return f.writeAbout()
}

// bothDevices names two lists of devices as one.
func bothDevices(a, b string) string {
	return strings.Join(listing.Union(strings.Split(a, ", "), strings.Split(b, ", ")...), ", ")
}

// hashOfTensors is AboutModel.HashOf of model.Model.SHA256.
const hashOfTensors = "tensors"

// model is what is known of a model; nil where nothing is.
func (e *Environment) model(name string) *AboutModel {
	if e == nil {
		return nil
	}
	for i := range e.Models {
		if e.Models[i].Name == name {
			return &e.Models[i]
		}
	}
	return nil
}

// deviceOf is what a model computed on, "" where it is not known.
func (e *Environment) deviceOf(model string) string {
	if m := e.model(model); m != nil {
		return m.Device
	}
	return ""
}

// sameWeights tells that two models have the same weights, as far as it is known.
func (m *AboutModel) sameWeights(other *AboutModel) bool {
	return m == nil || other == nil || m.HashOf != other.HashOf || m.SHA256 == "" || other.SHA256 == "" || m.SHA256 == other.SHA256
}

// sameModels takes in the devices of another's models. It is an error that names what is another: a model's weights, an
// adapter or a draft.
func (e *Environment) sameModels(other *Environment) error {
	for i := range e.Models {
		m := &e.Models[i]
		o := other.model(m.Name)
		if !m.sameWeights(o) {
			return fmt.Errorf("model %s: weights of SHA-256 %.12s…, want %.12s… as in the first shard", m.Name, o.SHA256, m.SHA256)
		}
		if o == nil {
			continue
		}
		if changes := o.Companions.Changed(m.Companions); changes != "" {
			return fmt.Errorf("model %s: adapters or drafts are not those of the first shard: %s", m.Name, changes)
		}
		m.Device = bothDevices(m.Device, o.Device)
	}
	return nil
}

// accept takes in what was accepted, once.
func (e *Environment) accept(notes []string) {
	e.Accepted = listing.Union(e.Accepted, notes...)
}

// writeAbout writes what is known of the models, including the models of the run that is continued, so that
// a run that is stopped can be compared with the one that goes on.
func (f *folder) writeAbout() error {
	about := f.about
	if f.begun != nil {
		for _, m := range f.begun.Models {
			if about.model(m.Name) == nil {
				about.Models = append(slices.Clip(about.Models), m)
			}
		}
	}
	text, err := json.MarshalIndent(about, "", "  ")
	if err != nil {
		return err
	}
	return f.writeFile(EnvironmentFile, append(text, '\n'))
}

func aboutPolicies(policies []engine.Policy) (out []AboutPolicy) {
	for _, c := range policies {
		out = append(out, AboutPolicy{Policy: c.Title(), Adapter: c.Adapter, Settings: c.Settings.Values()})
	}
	return out
}

// finishRun writes what the run has come to. MetricsFile is the last: where it is, all is.
func (f *folder) finishRun(rows []evaluation.Row, timings []evaluation.Timing, models, tasks []string) error {
	if f.path == "" {
		return nil
	}
	if err := f.beginFiles(); err != nil {
		return err
	}
	if err := f.partial.Sync(); err != nil {
		return err
	}
	all, err := readFinished(f.file(partialFile))
	if err != nil {
		return err
	}
	evaluation.SortPredictions(all, models, tasks)
	kept, err := readKept(f.file(KeptFile))
	if err != nil {
		return err
	}
	if err := f.files(rows, all, timings, ordered(sortedKept(kept, models, tasks), all)); err != nil {
		return err
	}
	return os.Remove(f.file(partialFile))
}

// timingsFile is what TimingsFile holds.
type timingsFile struct {
	Schema  string              `json:"schema"`
	Timings []evaluation.Timing `json:"timings"`
}

// files writes what a run has come to.
func (f *folder) files(rows []evaluation.Row, all []*evaluation.Prediction, timings []evaluation.Timing, kept []*evaluation.Kept) error {
	var lines bytes.Buffer
	if err := writeKept(&lines, kept); err != nil {
		return err
	}
	times, err := json.MarshalIndent(timingsFile{timingsSchema, timings}, "", "  ")
	if err != nil {
		return err
	}
	if err := errors.Join(f.writeAbout(), f.writeFile(TimingsFile, append(times, '\n')), f.writeFile(KeptFile, lines.Bytes())); err != nil {
		return err
	}
	return f.results(rows, all)
}

// results writes predictions and what they come to.
func (f *folder) results(rows []evaluation.Row, all []*evaluation.Prediction) error {
	var lines, metrics bytes.Buffer
	if err := errors.Join(evaluation.WritePredictions(&lines, all), evaluation.WriteJSON(&metrics, withoutTimes(rows))); err != nil {
		return err
	}
	if err := f.writeFile(PredictionsFile, lines.Bytes()); err != nil {
		return err
	}
	return f.writeFile(MetricsFile, metrics.Bytes())
}

// withoutTimes are the rows without what is not the same again.
func withoutTimes(rows []evaluation.Row) []evaluation.Row {
	quality := slices.Clone(rows)
	for i := range quality {
		r := &quality[i]
		r.TTFTMillis, r.TTFTOverhead, r.DecodeTokensPerSecond, r.PeakCacheBytes = nil, nil, nil, nil
	}
	return quality
}

// writeFile puts a file in place at once.
func (f *folder) writeFile(name string, data []byte) error {
	return atomicfile.WriteFile(f.file(name), data)
}

func (f *folder) close() {
	if f.partial != nil {
		f.partial.Close()
	}
	if f.kept != nil {
		f.kept.Close()
	}
	if f.unlock != nil {
		f.unlock()
		f.unlock = nil
	}
	if f.partial == nil {
		for _, dir := range slices.Backward(f.made) {
			os.Remove(dir) // fails where another has put something in it
		}
	}
}

// config is the job as YAML.
func (j *Job) config() ([]byte, error) {
	raw, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	var tree yaml.Node // JSON is YAML, with its keys in order
	if err := yaml.Unmarshal(raw, &tree); err != nil {
		return nil, err
	}
	blockStyle(&tree)
	return yaml.Marshal(&tree)
}

// blockStyle lays a tree out as people write YAML, without what is not set.
func blockStyle(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!str" {
		n.Style = 0
	}
	for i := 1; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if c := n.Content[i]; c.Tag == "!!null" { // is not set
			n.Content = slices.Delete(n.Content, i-1, i+1)
			i -= 2
		}
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// free are the keys that a run may be continued with other values of: where and how fast,
// and how far. The data's contents are compared by themselves.
var free = []string{"out", "device", "batch", "concurrency", "samples", "times", "strict", "s3", "inspect", "data_sha256"}

// grown are the keys whose lists may grow when a run is continued: see growToFolder.
var grown = []string{"models", "policies", "budgets"}

// sameConfig is an error that names the settings, but for the free ones, in which two configurations differ.
func sameConfig(old, now []byte, free []string) error {
	var a, b map[string]any
	if err := yaml.Unmarshal(old, &a); err != nil {
		return err
	}
	if err := yaml.Unmarshal(now, &b); err != nil {
		return err
	}
	all := make(map[string]any)
	maps.Copy(all, a)
	maps.Copy(all, b)
	var differ []string
	for k := range all {
		if !slices.Contains(free, k) && !reflect.DeepEqual(a[k], b[k]) {
			differ = append(differ, fmt.Sprintf("%s (was %s, is %s)", k, short(a[k]), short(b[k])))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	slices.Sort(differ)
	return fmt.Errorf("the run was begun with other settings: %s; want them as they were, or another folder, which evict report joins with this one", strings.Join(differ, ", "))
}

// identify finds out what the data are. What is missing the tasks tell.
func (j *Job) identify(ctx context.Context, log io.Writer) error {
	j.Contents = nil
	for _, name := range j.sources {
		if name == stdin.Name { // which no run reads twice
			continue
		}
		path, err := objectstore.LocalData(ctx, name, j.S3, log)
		if err == nil {
			err = j.Contents.Add(ctx, name, path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// contentsIn are the data's contents in a configuration.
func contentsIn(config []byte) (datasets.Contents, error) {
	var c struct {
		Contents datasets.Contents `yaml:"data_sha256"`
	}
	err := yaml.Unmarshal(config, &c)
	return c.Contents, err
}

// continues is an error where a configuration is not that of the run that was begun, or its data are
// others, unless that is accepted: then it is a note.
func (j *Job) continues(old, now []byte) (note string, err error) {
	may := free
	if j.began != nil {
		may = slices.Concat(free, grown)
	}
	if err := sameConfig(old, now, may); err != nil {
		return "", err
	}
	was, err := contentsIn(old)
	if err != nil {
		return "", err
	}
	if note, err = j.Contents.Since(was, j.Accept); err != nil {
		err = fmt.Errorf("%w; --accept-changed-data goes on all the same", err)
	}
	return note, err
}

// short is a value for an error.
func short(v any) string {
	if v == nil {
		return "not set"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(text) > 60 {
		return string(text[:57]) + "…"
	}
	return string(text)
}
