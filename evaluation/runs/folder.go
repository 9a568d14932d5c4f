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
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/evaluation"
	"glimpse/internal/listing"
	"glimpse/internal/stdin"
	"glimpse/internal/version"
	"glimpse/internal/yamlconfig"
	"glimpse/jobs"
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
// nothing in it but locks, and what was there before: see beginFolder.
type folder struct {
	path  string
	store objectstore.Store
	key   string   // of the folder in the store
	made  []string // folders that were made for it, outermost first
	work  *jobs.Work
	leave func()
	old   Stored // the run that is continued
	whose *Job

	begun bool // this process has measured something
	anew  bool // what the folder holds of a run is removed

	config []byte
	about  Environment
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
	Policy        string             `json:"policy"`
	Adapter       string             `json:"adapter,omitempty"`
	AdapterSHA256 string             `json:"adapter_sha256,omitempty"`
	Settings      map[string]float64 `json:"settings,omitempty"`
}

// The versions of the files.
const (
	environmentSchema = "glimpse.environment/1"
	timingsSchema     = "glimpse.timings/1"
)

// openFolder opens the output before any work is done: a new folder, or one that is
// continued, alone or with other processes.
func (j *Job) openFolder(ctx context.Context, log io.Writer) (_ *folder, err error) {
	f := &folder{path: j.Out, whose: j, leave: func() {}, about: Environment{Schema: environmentSchema, Glimpse: version.String(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}}
	if f.config, err = yamlconfig.EncodeSet(j); err != nil {
		return nil, err
	}
	if j.Out == "" {
		if j.Resume {
			return nil, errors.New("--resume needs --out, the folder of the run")
		}
		return f, nil
	}
	if err = f.enterRun(ctx, log); err != nil {
		f.close()
		return nil, fmt.Errorf("--out: %w", err)
	}
	return f, nil
}

// enterRun makes this process one of the run's.
func (f *folder) enterRun(ctx context.Context, log io.Writer) (err error) {
	if err := f.open(ctx, f.whose.S3); err != nil {
		return err
	}
	if !objectstore.IsURL(f.path) {
		if f.made, err = makeFolders(f.path); err != nil {
			return err
		}
	}
	f.work.Settings, f.work.OnBegin = f.config, f.beginFolder
	leave, err := f.work.Enter(ctx, filepath.Join(f.path, partialFile), func(alive bool) error { return f.whose.claim(ctx, f, alive, log) })
	if err == nil {
		f.leave = leave
	}
	return err
}

// open opens the store that the folder is in. Nothing is written.
func (f *folder) open(ctx context.Context, s3 objectstore.Settings) (err error) {
	if f.store, f.key, err = objectstore.Open(ctx, f.path, s3); err != nil {
		return err
	}
	dir := f.path
	if objectstore.IsURL(f.path) {
		dir = ""
	}
	f.work = jobs.Open(f.store, objectstore.Join(f.key, workFolder), dir)
	return nil
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

// beginFolder makes the folder that of the run when the first sample is measured, so that a run that fails before
// leaves the folder as it was. First is the configuration of the process that came first.
func (f *folder) beginFolder(ctx context.Context, first []byte) error {
	if first != nil {
		if _, err := f.whose.continues(first, f.config); err != nil {
			return fmt.Errorf("--out: %s: %w", f.path, err)
		}
	} else {
		if f.anew {
			for _, name := range []string{MetricsFile, PredictionsFile, TimingsFile, EnvironmentFile, KeptFile, JudgementsFile, partialFile, ConfigFile} {
				if err := f.store.Delete(ctx, objectstore.Join(f.key, name)); err != nil {
					return err
				}
			}
		}
		// First, so that a folder with anything in it is known as a run's.
		if err := f.writeFile(ConfigFile, f.config); err != nil {
			return err
		}
	}
	f.begun = true
	return f.writeAbout(ctx)
}

func (f *folder) file(name string) string { return f.store.URL(objectstore.Join(f.key, name)) }

// readFile reads a file, which is nil where there is none.
func (f *folder) readFile(ctx context.Context, name string) ([]byte, error) {
	data, err := objectstore.Get(ctx, f.store, objectstore.Join(f.key, name), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// maxFile bounds what is read of a file of a run.
const maxFile = 1 << 40

// readConfig reads the configuration that a run was begun with: of shards of earlier versions, theirs.
func (f *folder) readConfig(ctx context.Context) (config []byte, err error) {
	for _, name := range []string{ConfigFile, settingsFile} {
		config, err = objectstore.Get(ctx, f.store, objectstore.Join(f.key, name), yamlconfig.MaxBytes)
		if !errors.Is(err, fs.ErrNotExist) {
			return config, err
		}
	}
	return nil, nil
}

// claim finds out what the folder holds: nothing, a run that goes on, or what must not be
// lost.
func (j *Job) claim(ctx context.Context, f *folder, alive bool, log io.Writer) error {
	bucket := objectstore.IsURL(f.path)
	config, err := f.readConfig(ctx)
	if err == nil {
		err = f.old.read(ctx, f, math.MaxInt, max(j.Shards, 1))
	}
	if err != nil {
		return err
	}
	empty := config == nil || f.old.Damage == "" && !slices.ContainsFunc(f.old.Predictions, (*evaluation.Prediction).Measured)
	joined := false // to a run that others are at
	switch {
	case alive:
		var agreed []byte
		agreed, err = f.work.Agreed(ctx)
		joined = agreed != nil
	case !bucket && (empty || j.Files.Replace && !j.Resume):
		err = f.work.Discard(ctx) // what a killed run has left
	}
	if err != nil {
		return err
	}
	if config == nil {
		return f.checkStrange()
	}
	resume := j.Resume || joined || j.Shards > 0 || j.Shard != "" || bucket
	if f.anew = !joined && (j.Files.Replace && !resume || empty); f.anew {
		f.old = Stored{}
		return nil
	}
	if !resume {
		return fmt.Errorf("%s holds a run: go on with it with --resume, or begin anew with --replace", f.path)
	}
	if err := j.goOn(ctx, f, config, log); err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	return nil
}

// goOn makes sure that the run in the folder is the job's, and tells what is not as it was.
func (j *Job) goOn(ctx context.Context, f *folder, config []byte, log io.Writer) error {
	note, err := j.continues(config, f.config)
	if err != nil {
		return fmt.Errorf("%s: %w", f.file(ConfigFile), err)
	}
	if len(j.added) > 0 {
		fmt.Fprintf(log, "added to the run in %s: %s; what is there of others is not measured again\n", f.path, strings.Join(j.added, ", "))
	}
	if err := f.old.readAbout(ctx, f, max(j.Shards, 1)); err != nil {
		return err
	}
	if f.old.Environment != nil {
		f.about.Accepted = f.old.Environment.Accepted
	}
	if note != "" {
		fmt.Fprintln(log, note)
		f.about.acceptNotes([]string{note})
	}
	if f.old.Damage != "" {
		fmt.Fprintf(log, "%s: measured again from there\n", f.old.Damage)
	}
	return nil
}

// checkStrange is an error where a folder without a run holds something else.
func (f *folder) checkStrange() error {
	if objectstore.IsURL(f.path) {
		return nil
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			return fmt.Errorf("%s holds %s and no run, want a new or empty folder", f.path, e.Name())
		}
	}
	return nil
}

// describeRun takes down what is measured, which must be what the run was begun with.
func (f *folder) describeRun(ctx context.Context, m *engine.Model, policies []engine.Policy, log io.Writer) error {
	device := kernels.DeviceOf(m.Backend)
	if f.path == "" {
		f.about.Models = append(f.about.Models, AboutModel{Name: m.Name, Device: device})
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
	if was := f.old.Environment.model(m.Name); was != nil {
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
	if was := f.old.Environment.model(m.Name); was != nil && was.Device != device && was.Device != m.Backend.Name() { // which is all that earlier versions say
		fmt.Fprintf(log, "--resume: model %s was on %s and goes on on %s: where two tokens are nearly as likely, rounding may decide otherwise\n", m.Name, was.Device, device)
		device = bothDevices(was.Device, device)
	}
	about := AboutModel{Name: m.Name, SHA256: hash, HashOf: hashOfTensors, Companions: companions, Device: device}
	for _, p := range policies {
		about.Policies = append(about.Policies, AboutPolicy{p.Title(), p.Adapter, p.AdapterSHA256(), p.Settings.Values()})
	}
	if f.about.Models = append(f.about.Models, about); !f.begun {
		return nil
	}
	return f.writeAbout(ctx)
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

// nameDevices says in every row what its model computed on.
func (e *Environment) nameDevices(rows []evaluation.Row) {
	for i := range rows {
		if m := e.model(rows[i].Model); m != nil {
			rows[i].Device = m.Device
		}
	}
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

// acceptNotes takes in what was accepted, once.
func (e *Environment) acceptNotes(notes []string) {
	e.Accepted = listing.Union(e.Accepted, notes...)
}

// writeAbout writes what is known of the models, including the models of the run that is continued, so that
// a run that is stopped can be compared with the one that goes on.
func (f *folder) writeAbout(ctx context.Context) error {
	about := f.about
	if f.old.Environment != nil {
		for _, m := range f.old.Environment.Models {
			if about.model(m.Name) == nil {
				about.Models = append(slices.Clip(about.Models), m)
			}
		}
	}
	text, err := json.MarshalIndent(about, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	return errors.Join(f.work.Note(ctx, text), f.writeFile(EnvironmentFile, text))
}

// finish makes what the run has come to of the results of all processes, in one of them. out is nil where another has
// done it. MetricsFile is the last: where it is, all is.
func (f *folder) finish(ctx context.Context, models, tasks []string) (out *Outcome, err error) {
	_, err = f.work.Finish(ctx, func() error {
		var whole Stored
		if err := whole.read(ctx, f, math.MaxInt, max(f.whose.Shards, 1)); err != nil {
			return err
		}
		notes, err := f.work.Notes(ctx)
		if err != nil {
			return err
		}
		slices.SortFunc(notes, bytes.Compare)
		for _, text := range notes {
			var other Environment
			if err := json.Unmarshal(text, &other); err != nil {
				return err
			}
			if err := f.about.sameModels(&other); err != nil {
				return err
			}
			f.about.acceptNotes(other.Accepted)
		}
		out, err = sumUp(whole.Predictions, whole.Timings, models, tasks)
		if err != nil || len(out.Rows) == 0 {
			return err
		}
		f.about.nameDevices(out.Rows)
		if err := f.files(ctx, out.Rows, whole.Predictions, whole.Timings, ordered(sortedKept(whole.Kept, models, tasks), whole.Predictions)); err != nil {
			return err
		}
		return f.store.Delete(ctx, objectstore.Join(f.key, partialFile))
	})
	return out, err
}

// timingsFile is what TimingsFile holds.
type timingsFile struct {
	Schema  string              `json:"schema"`
	Timings []evaluation.Timing `json:"timings"`
}

// files writes what a run has come to.
func (f *folder) files(ctx context.Context, rows []evaluation.Row, all []*evaluation.Prediction, timings []evaluation.Timing, kept []*evaluation.Kept) error {
	var lines bytes.Buffer
	if err := writeKept(&lines, kept); err != nil {
		return err
	}
	times, err := json.MarshalIndent(timingsFile{timingsSchema, timings}, "", "  ")
	if err != nil {
		return err
	}
	if err := errors.Join(f.writeAbout(ctx), f.writeFile(TimingsFile, append(times, '\n')), f.writeFile(KeptFile, lines.Bytes())); err != nil {
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

// writeFile puts a file in place at once, also when the run is told to end.
func (f *folder) writeFile(name string, data []byte) error {
	return f.store.Put(context.Background(), objectstore.Join(f.key, name), bytes.NewReader(data), objectstore.PutOptions{})
}

func (f *folder) close() {
	f.leave()
	if !f.begun {
		for _, dir := range slices.Backward(f.made) {
			os.Remove(dir) // fails where another has put something in it
		}
	}
}

// settingsFile is the configuration of shards of earlier versions, workFolder where processes share out a run.
const (
	settingsFile = ".settings.yaml"
	workFolder   = ".work"
)

// free are the keys that a run may be continued with other values of: where and how fast,
// and how far. The data's contents are compared by themselves.
var free = []string{"out", "device", "batch", "concurrency", "samples", "times", "strict", "s3", "inspect", "data_sha256"}

// grown are the keys whose lists may grow when a run is continued: see growToFolder.
var grown = []string{"models", "policies", "budgets"}

// sameConfig is an error that names the settings, but for the free ones, in which two configurations differ.
func sameConfig(old, now []byte, free []string) error {
	var a, b map[string]any
	if err := errors.Join(yaml.Unmarshal(old, &a), yaml.Unmarshal(now, &b)); err != nil {
		return err
	}
	var differ []string
	for _, k := range differing(a, b) {
		if !slices.Contains(free, k) {
			differ = append(differ, fmt.Sprintf("%s (was %s, is %s)", k, short(a[k]), short(b[k])))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return fmt.Errorf("the run was begun with other settings: %s; want them as they were, or another folder, which evict report joins with this one", strings.Join(differ, ", "))
}

// differing are the keys that two configurations have different values of, sorted.
func differing(a, b map[string]any) []string {
	keys := listing.Union(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b))...)
	slices.Sort(keys)
	return slices.DeleteFunc(keys, func(k string) bool { return reflect.DeepEqual(a[k], b[k]) })
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
