package generation

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/internal/outputs"
	"glimpse/internal/stdin"
	"glimpse/jobs"
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
	s.Samples = 0
	return jobs.Read(path, sets, s, &s.Files, nil, func() error {
		if len(s.Sources) == 0 && s.Samples == 0 {
			s.Samples = 1000
		}
		return repeat()
	})
}

// check refuses what cannot be, and makes a source of --prompts.
func (s *Job) check() error {
	if err := s.promptSource(); err != nil {
		return err
	}
	for i, source := range s.Sources {
		if err := source.Validate(); err != nil {
			return fmt.Errorf("source %d: %w", i, err)
		}
	}
	if s.Out == "-" {
		s.Out = "/dev/stdout"
	}
	sharded := s.Shards > 0 || s.Shard != ""
	again := s.Resume || sharded
	fromStdin := slices.ContainsFunc(s.Sources, func(x datasets.MixSource) bool { return x.Path == stdin.Name })
	_, recipeErr := Recipes.Lookup(s.Recipe)
	_, _, shardErr := outputs.ShardOf(s.Shard, s.Shards)
	_, chatErr := chat.ParseOptions(s.ChatOptions, s.ChatDate)
	synthetic := len(s.Sources) == 0
	return cmp.Or(
		jobs.Refuse(again && fromStdin, "prompts from standard input cannot be read again, as --resume and --shards do: want a file"),
		jobs.Refuse(again && s.Out == "/dev/stdout", "--out -: samples on standard output cannot be gone on with, as --resume and --shards do: want a file"),
		jobs.Refuse(len(s.PromptFields) > 0 && s.Prompts == "", "--field: only with --prompts, want it in the file beside its source"),
		jobs.Refuse(s.Out == "", "--out is missing"),
		jobs.Refuse(s.Resume && s.Files.Replace, "got --resume and --replace, want one of them"),
		jobs.Refuse(s.Samples < 1 && (synthetic || s.SamplesGiven || s.Samples < 0), "samples: got %d, want at least 1", s.Samples),
		jobs.Refuse(s.MaxNew < 1, "--max-new: got %d, want at least 1", s.MaxNew),
		jobs.Refuse(s.MaxPrompt < 1, "--max-prompt: got %d, want at least 1", s.MaxPrompt),
		jobs.Refuse(s.Batch < 1 || s.Batch > runner.MaxBatch, "--batch: got %d, want 1 to %d", s.Batch, runner.MaxBatch),
		jobs.Refuse(strings.Contains(s.Out, "://") && !objectstore.IsURL(s.Out), "--out: got %q, want a path or s3://BUCKET/NAME", s.Out),
		jobs.Refuse(objectstore.IsURL(s.Out) && !sharded, "--out %s: what goes to a bucket is a folder of shards, want --shards too", s.Out),
		jobs.Refuse(s.Shards < 0 || s.Shards > 100000, "--shards: got %d, want 0 to 100000", s.Shards),
		jobs.Refuse(s.Samples > 0 && s.Samples < s.Shards, "--shards: got %d for %d samples, want at most as many", s.Shards, s.Samples),
		jobs.Refuse(s.Responses != "self" && s.Responses != "source", "--responses: got %q, want self or source", s.Responses),
		recipeErr,
		shardErr,
		errors.Join(model.CheckCacheDType(s.CacheDType), s.Check()),
		jobs.Refuse(len(s.ChatOptions) > 0 && synthetic, "--chat-option: synthetic prompts do not go into the chat template"),
		jobs.Refuse(s.ChatTemplate != "" && synthetic, "--chat-template: synthetic prompts do not go into the chat template"),
		chatErr,
	)
}

func (s *Job) promptSource() error {
	if s.Prompts == "" {
		return nil
	}
	if len(s.Sources) > 0 {
		return errors.New("--prompts with the sources of a file: want one of them")
	}
	fields, err := datasets.ParseFields(s.PromptFields)
	if err != nil {
		return fmt.Errorf("--field: %w", err)
	}
	s.Sources = []datasets.MixSource{{Path: s.Prompts, Fields: fields}}
	if !s.SamplesGiven {
		s.Samples = 0
	}
	return nil
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
