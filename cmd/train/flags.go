package main

import (
	"strings"

	"glimpse/model"
	"glimpse/training"
	"glimpse/training/runs"

	"github.com/spf13/pflag"
)

// bind adds the flags of the settings that all adapters of a run share.
func bind(f *pflag.FlagSet, s *runs.Spec) {
	c := &s.Train.Config
	f.StringVar(&s.Preset, "preset", s.Preset, "hyper-parameters of a paper, which other flags override: "+strings.Join(training.Presets.Names(), ", "))
	f.StringVar(&s.Model, "model", s.Model, "model folder, org/name[@revision] of the Hugging Face hub or s3://BUCKET/NAME, which are downloaded once; empty is the built-in model")
	f.StringVar(&s.Device, "device", s.Device, "where to compute: cpu, cuda:N, auto for a GPU where there is one (see \"evict doctor\"), or several that share the layers out (cuda:0-3, cpu,cpu)")
	f.StringVar(&s.CacheDType, "cache-dtype", s.CacheDType, model.CacheDTypeUsage)
	f.StringSliceVar((*[]string)(&s.Data), "data", s.Data, "pair files made by train generate, or folders or s3://BUCKET/NAME of their shards; \"-\" is standard input; none draws fresh synthetic prompts (built-in model only)")
	f.StringSliceVar((*[]string)(&s.HeldOut), "held-out", s.HeldOut, "pair files to validate on; without them, one pair in ten of --data, --validate at most, is held out")
	f.StringVar(&s.Tasks, "task", s.Tasks, "synthetic tasks, comma-separated, or all")
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
	f.Var(&s.CacheMemory, "cache-memory", "repeated samples' keys, values and targets kept in memory, as 512MiB or 1GB")
	f.Var(&s.CacheDisk, "cache-disk", "how much of them is kept on disk beyond that, as 20GB")
	v := &c.Validation
	f.IntVar(&v.Samples, "validate", v.Samples, "held-out samples; 0 validates nothing")
	f.IntVar(&v.Every, "validate-every", v.Every, "steps between validations, of which the best one's parameters are exported; 0 validates at the end only")
	f.Var(&v.Budgets, "validate-budgets", "budgets at which validations measure hit rate and recall: pairs per KV head and layer, or shares of the prompt, as 10%")
	f.IntVar(&v.Patience, "patience", v.Patience, "validations without a better loss after which the run stops; 0 goes on to the end")
	f.StringVar(&s.RunDir, "run", s.RunDir, "folder for the resolved configuration, the log, TensorBoard events, curves and, without --checkpoint, the state")
	f.StringVar(&s.Log, "log", s.Log, "JSONL file of every step's numbers")
	f.BoolVar(&s.Replace, "replace", s.Replace, "replace adapter folders that exist, and the records of an earlier run in --run")
	f.StringVar(&s.Checkpoint, "checkpoint", s.Checkpoint, "file that keeps the state of the run; it is written every --checkpoint-every steps and when the run is stopped")
	f.IntVar(&s.CheckpointEvery, "checkpoint-every", s.CheckpointEvery, "steps between checkpoints")
	f.StringVar(&s.Export, "export", s.Export, "folder or s3://BUCKET/NAME that the adapter is also written to at the end; of several adapters each has its name below it")
	f.StringVar(&s.Upload, "upload", s.Upload, "folder or s3://BUCKET/NAME that every checkpoint is sent to while the run goes on; --resume takes the newest from there where this machine has none")
	s.S3.Bind(f)
	f.BoolVar(&s.Resume, "resume", false, "go on from the checkpoint, if there is one, with the bits of a run that was never stopped")
	f.BoolVar(&s.AcceptChangedData, "accept-changed-data", false, "with --resume, go on although the data are not those that the run was begun with; the state records it")
}

// bindSet adds the flag that reaches every key of a file.
func bindSet(f *pflag.FlagSet, s *runs.Spec) {
	f.StringArrayVar(&s.Sets, "set", nil, "KEY=VALUE in the place of what the file says, with a dotted key; may be repeated")
}
