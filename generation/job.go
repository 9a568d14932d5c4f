package generation

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/internal/collective"
	"glimpse/internal/outputs"
	"glimpse/internal/stdin"
	"glimpse/internal/yamlconfig"
	"glimpse/model"
	"glimpse/model/chat"
	"glimpse/model/runner"
)

// Job is a generation as a file and flags describe it. Its json tags are the keys of the file.
type Job struct {
	Model  string `json:"model"`
	Device string `json:"device"`

	CacheDType string `json:"cache_dtype,omitempty"` // of keys and values

	S3 objectstore.Settings `json:"s3,omitzero"` // of a model or an output there

	Sources []datasets.MixSource `json:"sources,omitempty"` // none draws synthetic prompts
	Tasks   string               `json:"tasks"`
	Split   string               `json:"split"`
	Tokens  int                  `json:"tokens"`
	Samples int                  `json:"samples"` // prompts in all; 0 is all that the sources have
	Seed    uint64               `json:"seed"`    // of the mix, the recipe and the synthetic tasks

	Recipe string `json:"recipe"`
	Raw    bool   `json:"raw"` // "prompt" does not go into the chat template

	ChatTemplate string   `json:"chat_template,omitempty"` // in the place of the model's: a file, or a name of chat.Templates
	ChatOptions  []string `json:"chat_options,omitempty"`  // variables of the chat template, NAME=JSON
	ChatDate     string   `json:"chat_date,omitempty"`     // that it is told; today if empty

	Responses string `json:"responses"`  // self or source
	MaxPrompt int    `json:"max_prompt"` // tokens; longer prompts are left out
	MaxNew    int    `json:"max_new"`

	model.SamplingChoice
	SamplingSeed uint64 `json:"sampling_seed"`
	Batch        int    `json:"batch"`

	// Strict ends the generation at a record that cannot be read or made a prompt of. Without
	// it such records are told, counted and left out.
	Strict bool `json:"strict,omitempty"`

	Out    string `json:"out"`
	Shards int    `json:"shards"` // 0: one file

	// What only a command line says: the file or folder of prompts in the place of sources,
	// and where its rows hold what (see datasets.ParseFields), I/N for shard I of N alone, that
	// samples was given, and what may be written over.
	Prompts      string        `json:"-"`
	PromptFields []string      `json:"-"`
	Shard        string        `json:"-"`
	SamplesGiven bool          `json:"-"`
	Files        outputs.Files `json:"-"`
	Resume       bool          `json:"-"` // go on with the one file where it was interrupted

	// Ranks generate together: all have the same job, rank 0 reads the prompts and writes. Nil: this
	// process alone.
	Ranks collective.Group `json:"-"`

	sampling model.Sampling       // what the choice is for the model
	memory   int64                // that there is beside the weights; 0: it is not known
	local    []datasets.MixSource // the sources with copies in the place of URLs
}

// DefaultJob holds what neither file nor flags need to say.
func DefaultJob() *Job {
	return &Job{
		CacheDType: "auto",
		Device:     "cpu", Tasks: "all", Split: "train", Tokens: 512, Samples: 1000, Seed: 1, Recipe: "asis", Responses: "self",
		MaxPrompt: 16384, MaxNew: 512, SamplingSeed: 1, Batch: 8,
		SamplingChoice: model.SamplingChoice{From: model.SamplingGreedy},
	}
}

// Read takes a configuration file over the defaults, with KEY=VALUE of sets in the place of
// what it says. repeat puts the flags that were given over both.
func (s *Job) Read(path string, sets []string, repeat func() error) error {
	data, err := yamlconfig.Read(path)
	if err != nil {
		return err
	}
	s.Samples = 0
	if err := yamlconfig.Decode(path, data, sets, s); err != nil {
		return err
	}
	s.Files.Input(path)
	if len(s.Sources) == 0 && s.Samples == 0 {
		s.Samples = 1000
	}
	return repeat()
}

// checkShard finds which shard is meant and refuses what cannot be.
func (s *Job) checkShard() (only int, err error) {
	if s.Ranks == nil {
		s.Ranks = collective.Alone()
	}
	if s.Prompts != "" {
		if len(s.Sources) > 0 {
			return 0, fmt.Errorf("--prompts with the sources of a file: want one of them")
		}
		fields, err := datasets.ParseFields(s.PromptFields)
		if err != nil {
			return 0, fmt.Errorf("--field: %w", err)
		}
		s.Sources = []datasets.MixSource{{Path: s.Prompts, Fields: fields}}
		if !s.SamplesGiven {
			s.Samples = 0
		}
	}
	for i, source := range s.Sources {
		if err := source.Validate(); err != nil {
			return 0, fmt.Errorf("source %d: %w", i, err)
		}
	}
	if s.Out == "-" {
		s.Out = "/dev/stdout"
	}
	again := s.Resume || s.Shards > 0 || s.Shard != ""
	switch {
	case again && slices.ContainsFunc(s.Sources, func(x datasets.MixSource) bool { return x.Path == stdin.Name }):
		return 0, fmt.Errorf("prompts from standard input cannot be read again, as --resume and --shards do: want a file")
	case again && s.Out == "/dev/stdout":
		return 0, fmt.Errorf("--out -: samples on standard output cannot be gone on with, as --resume and --shards do: want a file")
	case len(s.PromptFields) > 0 && s.Prompts == "":
		return 0, fmt.Errorf("--field: only with --prompts, want it in the file beside its source")
	case s.Out == "":
		return 0, fmt.Errorf("--out is missing")
	case s.Resume && s.Files.Replace:
		return 0, fmt.Errorf("got --resume and --replace, want one of them")
	case s.Samples < 1 && (len(s.Sources) == 0 || s.SamplesGiven || s.Samples < 0):
		return 0, fmt.Errorf("samples: got %d, want at least 1", s.Samples)
	case s.MaxNew < 1:
		return 0, fmt.Errorf("--max-new: got %d, want at least 1", s.MaxNew)
	case s.MaxPrompt < 1:
		return 0, fmt.Errorf("--max-prompt: got %d, want at least 1", s.MaxPrompt)
	case s.Batch < 1 || s.Batch > runner.MaxBatch:
		return 0, fmt.Errorf("--batch: got %d, want 1 to %d", s.Batch, runner.MaxBatch)
	case strings.Contains(s.Out, "://") && !objectstore.IsURL(s.Out):
		return 0, fmt.Errorf("--out: got %q, want a path or s3://BUCKET/NAME", s.Out)
	case objectstore.IsURL(s.Out) && s.Shards == 0 && s.Shard == "":
		return 0, fmt.Errorf("--out %s: what goes to a bucket is a folder of shards, want --shards too", s.Out)
	case s.Shards < 0 || s.Shards > 100000:
		return 0, fmt.Errorf("--shards: got %d, want 0 to 100000", s.Shards)
	case s.Samples > 0 && s.Samples < s.Shards:
		return 0, fmt.Errorf("--shards: got %d for %d samples, want at most as many", s.Shards, s.Samples)
	case s.Responses != "self" && s.Responses != "source":
		return 0, fmt.Errorf("--responses: got %q, want self or source", s.Responses)
	}
	if _, err := Recipes.Lookup(s.Recipe); err != nil {
		return 0, err
	}
	only, s.Shards, err = outputs.ShardOf(s.Shard, s.Shards)
	return only, err
}

// checkChat refuses what a chat template cannot see beside the messages.
func (s *Job) checkChat() error {
	for flag, given := range map[string]bool{"--chat-option": len(s.ChatOptions) > 0, "--chat-template": s.ChatTemplate != ""} {
		if given && len(s.Sources) == 0 && s.Prompts == "" {
			return fmt.Errorf("%s: synthetic prompts do not go into the chat template", flag)
		}
	}
	_, err := chat.ParseOptions(s.ChatOptions, s.ChatDate)
	return err
}

// headerSampling is the sampling as the header has it.
func (s *Job) headerSampling() datasets.Sampling {
	d := s.sampling
	h := datasets.Sampling{Temperature: d.Temperature, TopP: d.TopP, TopK: d.TopK, MinP: d.MinP, MaxNewTokens: s.MaxNew, Processors: d.Processors.String()}
	if h.TopP == 0 { // all
		h.TopP = 1
	}
	return h
}

// promptsText is what the header says of the prompts: two generations with the same text
// give the same pairs.
func (s *Job) promptsText() string {
	record := *s
	record.Model, record.Device, record.CacheDType, record.Out, record.Batch = "", "", "", "", 0 // where, not what
	record.Strict = false
	record.S3 = objectstore.Settings{}
	if len(s.Sources) > 0 {
		record.Tasks, record.Split, record.Tokens = "", "", 0
	}
	h := s.headerSampling()
	record.SamplingChoice = model.SamplingChoice{Temperature: &h.Temperature, TopP: &h.TopP, TopK: &h.TopK}
	if h.MinP > 0 {
		record.MinP = &h.MinP
	}
	text, err := json.Marshal(struct {
		Job
		Processors model.Processors `json:"processors,omitzero"`
	}{record, s.sampling.Processors})
	if err != nil {
		panic(err) // of numbers and texts
	}
	sum := sha256.Sum256(text)
	if len(s.Sources) == 0 {
		return fmt.Sprintf("synthetic tasks %s, %d tokens, seed %d, settings %x", s.Tasks, s.Tokens, s.Seed, sum[:6])
	}
	return fmt.Sprintf("%d sources, recipe %s, responses %s, prompts of up to %d tokens, seed %d, settings %x", len(s.Sources), s.Recipe, s.Responses, s.MaxPrompt, s.Seed, sum[:6])
}
