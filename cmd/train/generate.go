package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/generation"
	"glimpse/internal/cli"
	"glimpse/internal/progress"
	"glimpse/internal/yamlconfig"
	"glimpse/model"
	"glimpse/model/chat"
	"glimpse/model/hub"
	"glimpse/training"

	"github.com/spf13/cobra"
)

// generateSpec is a generation as a file and flags describe it.
type generateSpec struct {
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

	ChatOptions []string `json:"chat_options,omitempty"` // variables of the chat template, NAME=JSON
	ChatDate    string   `json:"chat_date,omitempty"`    // that it is told; today if empty

	Responses string `json:"responses"`  // self or source
	MaxPrompt int    `json:"max_prompt"` // tokens; longer prompts are left out
	MaxNew    int    `json:"max_new"`

	model.SamplingChoice
	SamplingSeed uint64 `json:"sampling_seed"`
	Batch        int    `json:"batch"`

	Out    string `json:"out"`
	Shards int    `json:"shards"` // 0: one file

	prompts, shard string
	samplesSet     bool
	files          cli.Outputs
	settled        model.Sampling // what the choice is for the model
}

func newGenerate() *cobra.Command {
	s := &generateSpec{
		CacheDType: "auto",
		Device:     "cpu", Tasks: "default", Split: "train", Tokens: 512, Samples: 1000, Seed: 1, Recipe: "asis", Responses: "self",
		MaxPrompt: 16384, MaxNew: 512, SamplingSeed: 1, Batch: 8,
		SamplingChoice: model.SamplingChoice{From: model.SamplingGreedy},
	}
	var sets []string
	cmd := &cobra.Command{
		Use:   "generate [CONFIG.yaml]",
		Short: "Generate the model's own responses to prompts, as training pairs",
		Long: `Generate the model's own responses to prompts, as training pairs.

Prompts come from files and folders in any of the usual formats (JSONL and JSON with
"messages", "conversations", "conversation", "prompt", "text" or "prompt_ids", Parquet
with such columns, plain text): one of them with --prompts, or several, mixed by
weights, with a configuration:

  model: path/to/llama
  recipe: lookaheadkv            # drop the last answer; cut texts at a random place
  sources:
    - {path: chat.jsonl, weight: 50}
    - {path: code/, format: text, weight: 7, limit: 7000}
  samples: 80000
  max_prompt: 16384
  max_new: 512
  shards: 64
  out: pairs/

"prompt" and chats go into the model's chat template; "text" does not, nor does "prompt"
with --raw or for a model without a template. Without either they are drawn from the synthetic long-context tasks, which only the
built-in model understands. Responses are greedy unless a temperature is given, or
--sampling model follows the model's generation_config.json;
--responses source takes the answers of the files instead of generating any.

With --shards the output is a folder of files, of which any number of workers on a
shared folder each take those that are free; a finished one is never done again, and
one whose worker was killed goes on where it stopped. --shard I/N does only shard I,
from 0; so do workers of an indexed Kubernetes job (JOB_COMPLETION_INDEX) and of
mpirun (OMPI_COMM_WORLD_RANK). Without --shards the output is one file, which appears
under its name only when it is complete.

The folder may be one of a bucket, --out s3://BUCKET/NAME, with the same promises to
workers anywhere. There the claim of a killed worker is free after 3 minutes.`,
		Example: `  train generate --samples 64 --out pairs.jsonl
  train generate --tasks copy,chain --tokens 256 --samples 100 --seed 7 --out pairs7.jsonl
  train generate --samples 60 --shards 3 --out out/pairs
  train generate path/to/config.yaml --model path/to/llama --shard 3/64
  train generate path/to/config.yaml --model path/to/llama --shards 64 --out s3://bucket/pairs`,
		Args: cli.Args("[CONFIG.yaml]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := givenFlags(cmd.Flags())
			s.samplesSet = cmd.Flags().Changed("samples")
			if len(args) == 1 {
				data, err := os.ReadFile(args[0])
				if err != nil {
					return err
				}
				s.Samples = 0
				if err := yamlconfig.Decode(args[0], data, sets, s); err != nil {
					return err
				}
				s.files.Input(args[0])
				if len(s.Sources) == 0 && s.Samples == 0 {
					s.Samples = 1000
				}
				if err := flags.Repeat(); err != nil {
					return err
				}
			} else if len(sets) > 0 {
				return fmt.Errorf("generate: --set needs a configuration")
			}
			return s.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Model, "model", s.Model, "model folder, org/name[@revision] of the Hugging Face hub or s3://BUCKET/NAME, which are downloaded once; empty is the built-in model")
	s.S3.Bind(f)
	f.StringVar(&s.Device, "device", s.Device, "where to compute: cpu, cuda:N, or auto for a GPU where there is one (see \"evict doctor\")")
	f.StringVar(&s.CacheDType, "cache-dtype", s.CacheDType, model.CacheDTypeUsage)
	f.StringVar(&s.prompts, "prompts", "", "file or folder of prompts")
	f.StringVar(&s.Recipe, "recipe", s.Recipe, "what is done with them: "+strings.Join(generation.Recipes.Names(), ", "))
	f.BoolVar(&s.Raw, "raw", s.Raw, "take \"prompt\" as it is, without the model's chat template")
	cli.BindChat(f, &s.ChatOptions, &s.ChatDate)
	f.StringVar(&s.Responses, "responses", s.Responses, "self: the model's own; source: the answers of the files")
	f.IntVar(&s.MaxPrompt, "max-prompt", s.MaxPrompt, "most tokens of a prompt; longer ones are left out")
	f.StringVar(&s.Tasks, "tasks", s.Tasks, "synthetic tasks, comma-separated, or default, or all")
	f.StringVar(&s.Split, "split", s.Split, "split of the synthetic tasks: train, validation or test")
	f.IntVar(&s.Tokens, "tokens", s.Tokens, "prompt length of the synthetic tasks")
	f.IntVar(&s.Samples, "samples", s.Samples, "number of prompts; with files, at most so many")
	f.Uint64Var(&s.Seed, "seed", s.Seed, "seed of the mix, the recipe and the synthetic tasks")
	f.IntVar(&s.MaxNew, "max-new", s.MaxNew, "most tokens of a response")
	s.SamplingChoice.Bind(f)
	f.Uint64Var(&s.SamplingSeed, "sampling-seed", s.SamplingSeed, "seed of the sampling")
	f.IntVar(&s.Batch, "batch", s.Batch, "sequences decoded at the same time")
	f.IntVar(&s.Shards, "shards", s.Shards, "files that the output is split into; 0 is one file instead of a folder")
	f.StringVar(&s.shard, "shard", "", "I/N: only shard I of N, from 0")
	s.files.Bind(f)
	f.StringVarP(&s.Out, "out", "o", "", "file, or with --shards folder or s3://BUCKET/NAME, to write")
	f.StringArrayVar(&sets, "set", nil, "KEY=VALUE in the place of what the file says, with a dotted key; may be repeated")
	return cmd
}

// check settles which shard is meant and refuses what cannot be.
func (s *generateSpec) check() (only int, err error) {
	only = -1
	if s.prompts != "" {
		if len(s.Sources) > 0 {
			return 0, fmt.Errorf("generate: --prompts with the sources of a file: want one of them")
		}
		s.Sources = []datasets.MixSource{{Path: s.prompts}}
		if !s.samplesSet {
			s.Samples = 0
		}
	}
	switch {
	case s.Out == "":
		return 0, fmt.Errorf("generate: --out is missing")
	case s.Samples < 1 && (len(s.Sources) == 0 || s.samplesSet || s.Samples < 0):
		return 0, fmt.Errorf("generate: samples: got %d, want at least 1", s.Samples)
	case s.MaxNew < 1:
		return 0, fmt.Errorf("generate: --max-new: got %d, want at least 1", s.MaxNew)
	case s.MaxPrompt < 1:
		return 0, fmt.Errorf("generate: --max-prompt: got %d, want at least 1", s.MaxPrompt)
	case s.Batch < 1:
		return 0, fmt.Errorf("generate: --batch: got %d, want at least 1", s.Batch)
	case strings.Contains(s.Out, "://") && !objectstore.IsURL(s.Out):
		return 0, fmt.Errorf("generate: --out: got %q, want a path or s3://BUCKET/NAME", s.Out)
	case objectstore.IsURL(s.Out) && s.Shards == 0 && s.shard == "":
		return 0, fmt.Errorf("generate: --out %s: what goes to a bucket is a folder of shards, want --shards too", s.Out)
	case s.Shards < 0 || s.Shards > 100000:
		return 0, fmt.Errorf("generate: --shards: got %d, want 0 to 100000", s.Shards)
	case s.Samples > 0 && s.Samples < s.Shards:
		return 0, fmt.Errorf("generate: --shards: got %d for %d samples, want at most as many", s.Shards, s.Samples)
	case s.Responses != "self" && s.Responses != "source":
		return 0, fmt.Errorf("generate: --responses: got %q, want self or source", s.Responses)
	case s.Responses == "source" && len(s.Sources) == 0:
		return 0, fmt.Errorf("generate: --responses source: the synthetic tasks have none, want --prompts or sources")
	}
	if _, err := generation.Recipes.Lookup(s.Recipe); err != nil {
		return 0, fmt.Errorf("generate: %w", err)
	}
	if s.shard != "" {
		i, n, ok := strings.Cut(s.shard, "/")
		index, err := strconv.Atoi(i)
		count, err2 := strconv.Atoi(n)
		if !ok || err != nil || err2 != nil || count < 1 || index < 0 || index >= count {
			return 0, fmt.Errorf("generate: --shard: got %q, want I/N with I from 0 to N-1", s.shard)
		}
		if s.Shards > 0 && s.Shards != count {
			return 0, fmt.Errorf("generate: --shard %s: of %d shards, but the output has %d", s.shard, count, s.Shards)
		}
		s.Shards = count
		return index, nil
	}
	for _, name := range []string{"JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK"} {
		text, ok := os.LookupEnv(name)
		if !ok || s.Shards == 0 {
			continue
		}
		index, err := strconv.Atoi(text)
		if err != nil || index < 0 || index >= s.Shards {
			return 0, fmt.Errorf("generate: %s: got %q, want 0 to %d: as many workers as --shards", name, text, s.Shards-1)
		}
		return index, nil
	}
	return only, nil
}

// settle decides the sampling of the model's responses.
func (s *generateSpec) settle(m *model.Model) (err error) {
	if s.settled, err = s.Resolve(m); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	s.settled.Seed = s.SamplingSeed
	return nil
}

// chatOptions are what the chat template sees beside the messages.
func (s *generateSpec) chatOptions() (chat.Options, error) {
	if len(s.ChatOptions) > 0 && len(s.Sources) == 0 && s.prompts == "" {
		return chat.Options{}, fmt.Errorf("--chat-option: synthetic prompts do not go into the chat template")
	}
	return chat.ParseOptions(s.ChatOptions, s.ChatDate)
}

// run generates everything, or one shard, or all shards that are free.
func (s *generateSpec) run(ctx context.Context, log io.Writer) error {
	only, err := s.check()
	if err != nil {
		return err
	}
	if err := model.CheckCacheDType(s.CacheDType); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	if err := s.Check(); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	chatOptions, err := s.chatOptions()
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	if s.Shards == 0 {
		unlock, err := s.claimFile()
		if err != nil {
			return fmt.Errorf("generate: %w", err)
		}
		defer unlock()
	}
	open, err := s.shardOpener(ctx)
	if err != nil {
		return err
	}
	training.BoundMemory()
	m, err := hub.Open(ctx, s.Model, s.S3, log, model.Options{Device: s.Device, CacheDType: s.CacheDType, Chat: chatOptions, BeforeWeights: func(m *model.Model) error {
		if err := s.settle(m); err != nil {
			return err
		}
		return s.checkMemory(ctx, m)
	}})
	if err != nil {
		return err
	}
	defer m.Close()
	hash, err := m.SHA256(ctx)
	if err != nil {
		return err
	}
	header := datasets.PairHeader{
		Model: m.Name, WeightsSHA256: hash, Seed: s.SamplingSeed, Shards: max(1, s.Shards), Data: s.describe(), Sampling: s.headerSampling(),
	}
	s.Report(log, m, s.settled)
	if s.Shards == 0 {
		w, err := datasets.CreatePairs(s.Out, header)
		if err != nil {
			return err
		}
		if err := s.fill(ctx, m, w, 0, "", 0, s.Out, log); err != nil {
			w.Abort()
			return err
		}
		return w.Commit()
	}
	shards := []int{only}
	if only < 0 {
		shards = shards[:0]
		for i := range s.Shards {
			shards = append(shards, i)
		}
	}
	claimed, seen, look := 0, make(map[int]string), time.Duration(0)
	for len(shards) > 0 {
		var again []int
		for _, i := range shards {
			header.Shard = i
			err := s.fillShard(m, open, header, log)
			var claim *objectstore.ClaimedError
			switch {
			case errors.Is(err, datasets.ErrFinished):
				fmt.Fprintf(log, "shard %d of %d is finished already\n", i, s.Shards)
			case errors.As(err, &claim) && (seen[i] == "" || seen[i] == claim.Sign):
				// Of a worker that lives, or that was killed a short while ago: time will tell.
				seen[i] = claim.Sign
				again = append(again, i)
			case only < 0 && (errors.Is(err, datasets.ErrClaimed) || errors.Is(err, objectstore.ErrClaimed) || errors.Is(err, objectstore.ErrClaimLost)):
				claimed++
			case err != nil:
				return fmt.Errorf("generate: %w", err)
			}
		}
		if shards = again; len(shards) == 0 {
			break
		}
		if look == 0 {
			fmt.Fprintf(log, "%d of %d shards are claimed by others; looking whether these still live\n", len(shards), s.Shards)
		}
		look = min(max(2*look, firstLook), lastLook)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(look):
		}
	}
	if claimed > 0 {
		fmt.Fprintf(log, "%d of %d shards are being worked on by others\n", claimed, s.Shards)
	}
	return nil
}

// claimFile makes sure that the one file of the output may be written, by this run alone.
func (s *generateSpec) claimFile() (unlock func(), err error) {
	for _, source := range s.Sources {
		s.files.Input(source.Path)
	}
	unlock, err = cli.LockOutput(s.Out)
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	if err := s.files.Check("--out", s.Out); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// The time between two looks at claims in a bucket, which grows. An owner that lives
// shows it within 20 s.
const (
	firstLook = 500 * time.Millisecond
	lastLook  = 5 * time.Second
)

// shard is a shard to be filled, on a folder or in a bucket.
type shard interface {
	generation.PairSink
	Commit() error
	Release()
}

// openShard claims a shard. Work on it ends with the context; last and done are what
// is there already.
type openShard func(h datasets.PairHeader) (w shard, work context.Context, last string, done int, err error)

// shardOpener gives the function that claims shards of the output.
func (s *generateSpec) shardOpener(ctx context.Context) (openShard, error) {
	if !objectstore.IsURL(s.Out) {
		return func(h datasets.PairHeader) (shard, context.Context, string, int, error) {
			w, err := datasets.OpenShard(s.Out, h)
			if err != nil {
				return nil, nil, "", 0, err
			}
			return w, ctx, w.Last, w.Done, nil
		}, nil
	}
	store, folder, err := objectstore.Open(ctx, s.Out, s.S3)
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	stored := generation.Stored{Store: store, Folder: folder}
	return func(h datasets.PairHeader) (shard, context.Context, string, int, error) {
		w, err := stored.Open(ctx, h)
		if err != nil {
			return nil, nil, "", 0, err
		}
		return w, w.Context(), w.Last, w.Done, nil
	}, nil
}

// headerSampling is the settled sampling as the header has it.
func (s *generateSpec) headerSampling() datasets.Sampling {
	d := s.settled
	h := datasets.Sampling{Temperature: d.Temperature, TopP: d.TopP, TopK: d.TopK, MinP: d.MinP, MaxNewTokens: s.MaxNew, Processors: d.Processors.String()}
	if h.TopP == 0 { // all
		h.TopP = 1
	}
	return h
}

// describe is what the header says of the prompts: two generations with the same text
// give the same pairs.
func (s *generateSpec) describe() string {
	record := *s
	record.Model, record.Device, record.CacheDType, record.Out, record.Batch = "", "", "", "", 0 // where, not what
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
		generateSpec
		Processors model.Processors `json:"processors,omitzero"`
	}{record, s.settled.Processors})
	if err != nil {
		panic(err) // of numbers and texts
	}
	sum := sha256.Sum256(text)
	if len(s.Sources) == 0 {
		return fmt.Sprintf("synthetic tasks %s, %d tokens, seed %d, settings %x", s.Tasks, s.Tokens, s.Seed, sum[:6])
	}
	return fmt.Sprintf("%d sources, recipe %s, responses %s, prompts of up to %d tokens, seed %d, settings %x", len(s.Sources), s.Recipe, s.Responses, s.MaxPrompt, s.Seed, sum[:6])
}

func (s *generateSpec) fillShard(m *model.Model, open openShard, h datasets.PairHeader, log io.Writer) error {
	w, work, last, done, err := open(h)
	if err != nil {
		return err
	}
	defer w.Release()
	name := fmt.Sprintf("shard %d of %d", h.Shard, h.Shards)
	if done > 0 {
		fmt.Fprintf(log, "%s goes on after %d pairs\n", name, done)
	}
	if err := s.fill(work, m, w, h.Shard, last, done, name, log); err != nil {
		return err
	}
	return w.Commit()
}

// scanTokens is how many tokens of prompts are looked at to find the longest one.
const scanTokens = 2 << 20

// checkMemory is an error where the generation needs more memory than there is. Prompts
// have up to so many tokens as they may; where that is too much, those of small sources
// are looked at.
func (s *generateSpec) checkMemory(ctx context.Context, m *model.Model) error {
	if s.Responses == "source" {
		return nil
	}
	samples := s.Samples
	if s.Shards > 0 {
		samples = (samples + s.Shards - 1) / s.Shards
	}
	check := func(tokens int) error {
		return generation.CheckMemory(ctx, m, cli.AvailableMemory, tokens, samples, generation.Options{MaxNew: s.MaxNew, Sampling: s.settled, Batch: s.Batch})
	}
	if len(s.Sources) == 0 {
		return check(s.Tokens)
	}
	err := check(s.MaxPrompt)
	if errors.Is(err, model.ErrMemory) {
		if longest, ok := s.longest(ctx, m); ok {
			return check(longest)
		}
	}
	return err
}

// longest is the length of the longest prompt, if the prompts are few.
func (s *generateSpec) longest(ctx context.Context, m *model.Model) (tokens int, ok bool) {
	next, end, err := s.stream(m)
	if err != nil {
		return 0, false // which the generation tells
	}
	defer end()
	for all := 0; all <= scanTokens; {
		x, err := next()
		if err == io.EOF {
			return tokens, true
		}
		if err == nil {
			err = x.prepare(ctx, &x)
		}
		switch {
		case errors.Is(err, generation.ErrUnusable):
			all++ // nor do these go on forever
		case err != nil:
			return 0, false
		default:
			tokens, all = max(tokens, len(x.IDs)), all+len(x.IDs)
		}
	}
	return 0, false
}

// fill writes the pairs of a shard that follow the one with ID last.
func (s *generateSpec) fill(ctx context.Context, m *model.Model, w generation.PairSink, shard int, last string, done int, name string, log io.Writer) error {
	shards := max(1, s.Shards)
	total := int64(0)
	if s.Samples > 0 {
		total = int64((s.Samples - shard + shards - 1) / shards)
	}
	bar := progress.New(log, "prompts", total)
	bar.Skip(int64(done))
	records, closeRecords, err := s.stream(m)
	if err != nil {
		return err
	}
	defer closeRecords()
	skipping, unusable := last != "", 0
	next := func() (item, error) {
		for {
			x, err := records()
			if err != nil {
				if err == io.EOF && skipping {
					return item{}, fmt.Errorf("%s: the pair %s that it ended with is not among the prompts", name, last)
				}
				return item{}, err
			}
			switch {
			case x.index%shards != shard:
				continue
			case skipping:
				skipping = x.ID != last
				continue
			}
			err = x.prepare(ctx, &x)
			if errors.Is(err, generation.ErrUnusable) {
				unusable++
				bar.Add(1)
				continue
			}
			if err != nil {
				return item{}, fmt.Errorf("prompt %s: %w", x.ID, err)
			}
			return x, nil
		}
	}
	tokens, empty, written := 0, 0, done
	onPair := func(p datasets.Pair) {
		written++
		tokens += len(p.ResponseIDs)
		if len(p.ResponseIDs) == 0 {
			empty++
		}
		bar.Describe(fmt.Sprintf("%d response tokens", tokens))
		bar.Add(1)
	}
	if s.Responses == "source" {
		err = s.copySource(ctx, next, w, onPair, &unusable)
	} else {
		err = generation.Pairs(ctx, m, func() (generation.Prompt, error) {
			x, err := next()
			return x.Prompt, err
		}, w, generation.Options{MaxNew: s.MaxNew, Sampling: s.settled, Batch: s.Batch, OnPair: onPair})
	}
	bar.Done()
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "%s: %d pairs, %d response tokens, %d empty responses, %d prompts left out\n", name, written, tokens, empty, unusable)
	return nil
}

// copySource writes the answers that the sources give.
func (s *generateSpec) copySource(ctx context.Context, next func() (item, error), w generation.PairSink, onPair func(datasets.Pair), unusable *int) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		x, err := next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if x.source == nil {
			*unusable++
			continue
		}
		out := x.source[:min(len(x.source), s.MaxNew)]
		if x.Cut != nil {
			out = out[:x.Cut(len(out))]
		}
		pair := datasets.Pair{ID: x.ID, PromptIDs: x.IDs, ResponseIDs: out}
		if err := w.Write(pair); err != nil {
			return err
		}
		onPair(pair)
	}
}

// item is a prompt on its way: prepare fills in its tokens.
type item struct {
	generation.Prompt
	index   int
	source  []int32
	prepare func(ctx context.Context, x *item) error
}

// stream streams all prompts from the first one.
func (s *generateSpec) stream(m *model.Model) (next func() (item, error), end func(), err error) {
	if len(s.Sources) == 0 {
		stream, err := datasets.StreamFor(m.Name, m.Config.Vocab, s.Tasks, s.Split, s.Tokens, s.Seed)
		if err != nil {
			return nil, nil, err
		}
		i := -1
		return func() (item, error) {
			if i++; i >= s.Samples {
				return item{}, io.EOF
			}
			e, err := stream.At(i)
			return item{Prompt: generation.Prompt{ID: e.ID, Task: e.Task, IDs: e.Prompt}, index: i, prepare: func(context.Context, *item) error { return nil }}, err
		}, func() {}, nil
	}
	recipe, err := generation.Recipes.Lookup(s.Recipe)
	if err != nil {
		return nil, nil, err
	}
	mix, err := datasets.OpenMix(s.Sources, s.Seed)
	if err != nil {
		return nil, nil, err
	}
	maxPrompt := min(s.MaxPrompt, m.Config.MaxPositions)
	return func() (item, error) {
		p, i, err := mix.Next()
		if err == nil && s.Samples > 0 && i >= s.Samples {
			err = io.EOF
		}
		if err != nil {
			return item{}, err
		}
		id := fmt.Sprintf("%d:%s", i, p.ID)
		if len(s.Sources) == 1 && s.Shards == 0 { // otherwise it must be the only one of that name
			id = p.ID
		}
		x := item{Prompt: generation.Prompt{ID: id}, index: i}
		x.prepare = func(ctx context.Context, x *item) error {
			rng := rand.New(rand.NewPCG(s.Seed, uint64(i)))
			made, err := recipe.Prepare(ctx, m, p, generation.Limits{MaxPrompt: maxPrompt, Raw: s.Raw}, rng)
			if err != nil {
				return err
			}
			x.IDs, x.source = made.IDs, made.Source
			x.Cut = func(n int) int { return recipe.Cut(n, rng) }
			return nil
		}
		return x, nil
	}, func() { mix.Close() }, nil
}
