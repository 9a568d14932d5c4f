package runs

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/outputs"
	"glimpse/internal/stdin"
	"glimpse/jobs"
	"glimpse/model"
	"glimpse/model/runner"
)

// Job is an evaluation. Its json tags are the keys of a configuration.
type Job struct {
	Models []Subject `json:"models,omitempty"` // none: the built-in one

	Device       string               `json:"device"`
	CacheDType   string               `json:"cache_dtype"`
	Exact        bool                 `json:"exact,omitempty"` // float32 throughout
	S3           objectstore.Settings `json:"s3,omitzero"`
	ChatTemplate string               `json:"chat_template,omitempty"`
	ChatOptions  []string             `json:"chat_options,omitempty"`
	ChatDate     string               `json:"chat_date,omitempty"`

	Policies Names             `json:"policies"` // with options of their own, as d2o(beta=0.5)
	Set      []string          `json:"set,omitempty"`
	Budgets  []eviction.Budget `json:"budgets"`
	Tasks    []Task            `json:"tasks"`

	Shared // of all tasks that do not say it themselves

	Seed       uint64               `json:"seed"`
	Sampling   model.SamplingChoice `json:"sampling"`
	Agreement  string               `json:"agreement"` // auto, on or off
	Times      string               `json:"times"`     // none, ttft or all
	Batch      int                  `json:"batch"`
	Concurrent int                  `json:"concurrency"`
	Strict     bool                 `json:"strict"`
	Inspect    int                  `json:"inspect"` // how many prompts of each task show in the folder what is kept

	Out string `json:"out,omitempty"` // folder of the run; none keeps nothing

	// Contents are the files of the data as the run finds them, whatever a configuration says.
	Contents datasets.Contents `json:"data_sha256,omitempty"`

	// What only a command line says.
	Resume  bool          `json:"-"`
	Accept  bool          `json:"-"` // go on although the data have changed
	Files   outputs.Files `json:"-"`
	Shards  int           `json:"-"` // parts that any number of workers take; 0: one run
	Shard   string        `json:"-"` // I/N for one of them alone
	sources []string      // files that are read

	began *Job     // what the run that is continued was begun with; nil: nothing
	added []string // to it, in words
}

// Subject is a model with what its policies need.
type Subject struct {
	Model    string   `json:"model"`
	Adapters []string `json:"adapters,omitempty"`
	// AdaptersByDefault tells that Adapters are a user's defaults, see engine.Options.
	AdaptersByDefault bool     `json:"adapters_by_default,omitempty"`
	Drafts            []string `json:"drafts,omitempty"`
	Pattern           string   `json:"pattern,omitempty"`
	Heads             string   `json:"heads,omitempty"` // see engine.Options
}

// options are what a model is opened with.
func (j *Job) options(s Subject) *engine.Options {
	return &engine.Options{
		Model: s.Model, Device: j.Device, CacheDType: j.CacheDType, Exact: j.Exact, Policies: strings.Join(j.Policies, ","),
		Adapters: s.Adapters, AdaptersByDefault: s.AdaptersByDefault, Drafts: s.Drafts, Pattern: s.Pattern, Heads: s.Heads,
		Set: j.Set, Seed: j.Seed, S3: j.S3, ChatTemplate: j.ChatTemplate, ChatOptions: j.ChatOptions, ChatDate: j.ChatDate,
	}
}

// SetScalar makes a model's name alone a Subject.
func (s *Subject) SetScalar(text string) error {
	s.Model = text
	return nil
}

// Names are texts that may also be written as one, with commas between them.
type Names []string

// SetScalar reads the one text.
func (n *Names) SetScalar(text string) error {
	*n = Names{text}
	return nil
}

// Shared are settings of a task; what is not set is the task's own default.
type Shared struct {
	Samples   int    `json:"samples,omitempty"`
	Tokens    int    `json:"tokens,omitempty"`     // of prompts that are made
	MaxNew    int    `json:"max_new,omitempty"`    // tokens of an answer
	MaxPrompt int    `json:"max_prompt,omitempty"` // tokens of a prompt
	Truncate  string `json:"truncate,omitempty"`
	Raw       bool   `json:"raw,omitempty"`
	Split     string `json:"split,omitempty"`
	// ContextFirst: contexts are evicted before any of their questions is known.
	ContextFirst bool `json:"context_first,omitempty"`

	Data    string   `json:"data,omitempty"`
	Fields  []string `json:"fields,omitempty"`
	Metrics []string `json:"metrics,omitempty"`
}

// or is s with other's values where it has none.
func (s Shared) or(other Shared) Shared {
	s.Samples, s.Tokens = cmp.Or(s.Samples, other.Samples), cmp.Or(s.Tokens, other.Tokens)
	s.MaxNew, s.MaxPrompt = cmp.Or(s.MaxNew, other.MaxNew), cmp.Or(s.MaxPrompt, other.MaxPrompt)
	s.Truncate, s.Split, s.Data = cmp.Or(s.Truncate, other.Truncate), cmp.Or(s.Split, other.Split), cmp.Or(s.Data, other.Data)
	if len(s.Fields) == 0 {
		s.Fields = other.Fields
	}
	if len(s.Metrics) == 0 {
		s.Metrics = other.Metrics
	}
	s.Raw, s.ContextFirst = s.Raw || other.Raw, s.ContextFirst || other.ContextFirst
	return s
}

// Task is one or several tasks with the same settings.
type Task struct {
	Task    string   `json:"task"`           // TASK or TASK/SUBTASK, with commas between
	Name    string   `json:"name,omitempty"` // that results are reported by; "" is the task's, of own data that of the file
	Options []string `json:"options,omitempty"`
	Shared
}

// SetScalar makes the name alone a Task.
func (t *Task) SetScalar(text string) error {
	t.Task = text
	return nil
}

// DefaultPolicies are those that are compared where none are named.
const DefaultPolicies = "full,streamingllm,h2o,snapkv,pyramidkv,dapq,laq,judgeq,lookaheadkv,oracle"

// Default holds what neither file nor flags need to say.
func Default() *Job {
	return &Job{
		Device: "cpu", CacheDType: "auto", Seed: 1, Agreement: string(evaluation.AgreementAuto), Times: string(evaluation.TimesNone),
		Sampling: model.SamplingChoice{From: model.SamplingGreedy}, Batch: 8, Inspect: 1,
	}
}

// Read takes a configuration over the defaults, with KEY=VALUE of sets in the place of its
// values. repeat puts the flags that were given over both.
func (j *Job) Read(path string, sets []string, repeat func() error) error {
	return jobs.Read(path, sets, j, &j.Files, nil, repeat)
}

// fillDefaults fills in what depends on the rest: which tasks and policies there are where
// none are named.
func (j *Job) fillDefaults() {
	if len(j.Models) == 0 {
		j.Models = []Subject{{}}
	}
	if len(j.Tasks) == 0 {
		j.Tasks = []Task{{Task: "synthetic"}}
		if j.Data != "" {
			j.Tasks[0].Task = "data"
		}
	}
	if len(j.Policies) == 0 {
		j.Policies = Names{DefaultPolicies}
		if slices.ContainsFunc(j.Models, func(s Subject) bool { return s.Model != "" }) {
			j.Policies = Names{"full,streamingllm,h2o,tova,snapkv,pyramidkv,adakv,dapq,laq,judgeq?,lookaheadkv?,oracle"}
		}
	}
	if len(j.Budgets) == 0 {
		builtin := slices.ContainsFunc(j.Models, func(s Subject) bool { return s.Model == "" })
		for _, text := range []string{"32", "64", "96", "128"} {
			if !builtin {
				text = map[string]string{"32": "5%", "64": "10%", "96": "20%", "128": "50%"}[text]
			}
			b, _ := eviction.ParseBudget(text)
			j.Budgets = append(j.Budgets, b)
		}
	}
}

// plan is one subtask with its settings, for any model.
type plan struct {
	selection evaluation.Selection
	name      string
	setting   evaluation.Setting // without a model
}

// checkedPlans refuses what no model can make right, before anything is loaded.
func (j *Job) checkedPlans() ([]plan, error) {
	j.fillDefaults()
	if err := j.check(); err != nil {
		return nil, err
	}
	if err := j.nameData(); err != nil {
		return nil, err
	}
	var plans []plan
	j.sources = nil
	for _, t := range j.Tasks {
		selections, err := evaluation.ParseTasks(t.Task)
		if err != nil {
			return nil, err
		}
		t.Shared = t.Shared.or(j.Shared)
		if t.Name != "" && len(selections) > 1 {
			return nil, fmt.Errorf("tasks %s: name: got %q for %d tasks, want one of each", t.Task, t.Name, len(selections))
		}
		for _, s := range selections {
			p, err := j.plan(s, t)
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(plans, func(o plan) bool { return o.name == p.name }) {
				return nil, fmt.Errorf("task %s twice", p.name)
			}
			plans = append(plans, *p)
		}
	}
	return plans, nil
}

// check refuses settings that no run has.
func (j *Job) check() error {
	_, policiesErr := engine.PolicyNames(strings.Join(j.Policies, ","))
	_, overridesErr := eviction.ParseOverrides(j.Set)
	_, _, shardErr := outputs.ShardOf(j.Shard, j.Shards)
	models := make(map[string]bool)
	twice := slices.IndexFunc(j.Models, func(s Subject) bool {
		before := models[s.Model]
		models[s.Model] = true
		return before
	})
	sharded := j.Shards > 0 || j.Shard != ""
	return cmp.Or(
		jobs.Refuse(twice >= 0, "model %q twice", j.Models[max(twice, 0)].Model),
		errors.Join(eviction.CheckBudgets(j.Budgets), policiesErr, j.Sampling.Check(), model.CheckCacheDType(j.CacheDType), model.CheckExact(j.Exact, j.CacheDType)),
		overridesErr,
		oneOf("agreement", j.Agreement, evaluation.AgreementAuto, evaluation.AgreementOn, evaluation.AgreementOff),
		oneOf("times", j.Times, evaluation.TimesNone, evaluation.TimesTTFT, evaluation.TimesAll),
		jobs.Refuse(j.Shards < 0 || j.Shards > maxShards, "--shards: got %d, want 0 to %d", j.Shards, maxShards),
		jobs.Refuse(j.Data == stdin.Name && (j.Resume || sharded), "--data -: standard input cannot be read again, as --resume and --shards do: want a file"),
		shardErr,
		jobs.Refuse(sharded && j.Out == "", "--shards needs --out, a folder that all workers see"),
		jobs.Refuse(strings.Contains(j.Out, "://") && !objectstore.IsURL(j.Out), "--out: got %q, want a path or s3://BUCKET/NAME", j.Out),
		jobs.Refuse(j.Batch < 1 || j.Batch > runner.MaxBatch, "batch: got %d, want 1 to %d", j.Batch, runner.MaxBatch),
		jobs.Refuse(j.Concurrent < 0 || j.Concurrent > runner.MaxBatch, "concurrency: got %d, want 0 to %d", j.Concurrent, runner.MaxBatch),
		jobs.Refuse(j.Inspect < 0, "inspect: got %d, want at least 0", j.Inspect),
	)
}

// oneOf is the check of a setting that is one of three words.
func oneOf[W ~string](name, got string, a, b, c W) error {
	return jobs.Refuse(!slices.Contains([]W{a, b, c}, W(got)), "%s: got %q, want %s, %s or %s", name, got, a, b, c)
}

// nameData calls tasks of the user's own data by their files, "notes" for notes.jsonl; where several would be
// called the same, by as much of the path as tells them apart: "notes.csv", "notes.csv (june)".
func (j *Job) nameData() error {
	var tasks []Task
	var own []int             // places in tasks of those that need a name
	var taken, files []string // names that others have; the data of own
	for _, t := range j.Tasks {
		selections, err := evaluation.ParseTasks(t.Task)
		if err != nil {
			return err
		}
		data := cmp.Or(t.Data, j.Data)
		for _, s := range selections {
			if !s.Task.NamedByData || t.Name != "" || data == "" || data == stdin.Name {
				taken = append(taken, cmp.Or(t.Name, s.Name()))
				continue
			}
			if slices.Contains(files, data) {
				return fmt.Errorf("data %s twice", data)
			}
			own, files = append(own, len(tasks)), append(files, data)
			if len(selections) > 1 { // an entry of its own, which has the name
				one := t
				one.Task = s.Name()
				tasks = append(tasks, one)
				t.Task = strings.Join(slices.DeleteFunc(strings.Split(t.Task, ","), func(name string) bool { return strings.TrimSpace(name) == s.Name() }), ",")
			}
		}
		tasks = append(tasks, t)
	}
	forms := []func(path string) string{
		func(p string) string {
			base := path.Base(p)
			return cmp.Or(strings.TrimSuffix(base, dataExtension(base)), base)
		},
		path.Base,
		func(p string) string { return fmt.Sprintf("%s (%s)", path.Base(p), path.Base(path.Dir(p))) },
		func(p string) string { return fmt.Sprintf("%s (%s)", path.Base(p), path.Dir(p)) },
	}
	name := func(form int, file string) string { return forms[form](strings.TrimRight(filepath.ToSlash(file), "/")) }
	for i, place := range own {
		form := 0
		clash := func(other string) bool { return other != files[i] && name(form, other) == name(form, files[i]) }
		for form < len(forms)-1 && (slices.Contains(taken, name(form, files[i])) || slices.ContainsFunc(files, clash)) {
			form++
		}
		tasks[place].Name = name(form, files[i])
	}
	j.Tasks = tasks
	return nil
}

// dataExtension is the extension of a file of data with that of its compression, "" of another.
func dataExtension(name string) string {
	ext := path.Ext(name)
	if slices.Contains([]string{".gz", ".zst"}, ext) {
		ext = path.Ext(strings.TrimSuffix(name, ext)) + ext
	}
	return ext
}

// maxShards bounds the parts of a run.
const maxShards = 100000

// maxSamples bounds the samples of a task, whose measures are in memory.
const maxSamples = 1 << 20

func (j *Job) plan(s evaluation.Selection, t Task) (*plan, error) {
	if err := cmp.Or(
		jobs.Refuse(t.Samples < 0 || t.Samples > maxSamples, "samples: got %d, want 1 to %d", t.Samples, maxSamples),
		jobs.Refuse(t.Tokens < 0 || t.MaxNew < 0 || t.MaxPrompt < 0, "tokens %d, max-new %d, max-prompt %d: want none below 0", t.Tokens, t.MaxNew, t.MaxPrompt),
		jobs.Refuse(t.ContextFirst && !s.Task.Contexts, "--context-first: it asks one question of each prompt; of several are %s", strings.Join(evaluation.ContextTasks(), ", ")),
		jobs.Refuse(s.Task.NeedsData && t.Data == "", "needs --data: %s", s.Task.Data),
	); err != nil {
		return nil, fmt.Errorf("task %s: %w", s.Name(), err)
	}
	options, err := s.Task.SetOptions(t.Options)
	if err != nil {
		return nil, err
	}
	set := evaluation.Setting{
		S3: j.S3, Fields: t.Fields, Metrics: t.Metrics, Samples: t.Samples, Tokens: t.Tokens, Seed: j.Seed,
		MaxNew: t.MaxNew, MaxPrompt: t.MaxPrompt, Raw: t.Raw, Split: datasets.Test, Truncate: evaluation.TruncateNone, Options: options,
		ContextFirst: t.ContextFirst,
	}
	if s.Task.Data != "" {
		set.Data = t.Data
		if t.Data != "" {
			j.sources = append(j.sources, t.Data)
			j.Files.Input(t.Data)
		}
	}
	if t.Truncate != "" {
		if set.Truncate, err = evaluation.ParseTruncation(t.Truncate); err != nil {
			return nil, err
		}
	}
	if t.Split != "" {
		if set.Split, err = datasets.ParseSplit(t.Split); err != nil {
			return nil, err
		}
	}
	return &plan{selection: s, name: cmp.Or(t.Name, s.Name()), setting: set}, nil
}
