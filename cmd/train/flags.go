package main

import (
	"strings"

	"glimpse/internal/cli"
	"glimpse/model"
	"glimpse/training"
	"glimpse/training/runs"

	"github.com/spf13/pflag"
)

// bindSpec adds the flags of the settings that all adapters of a run share.
func bindSpec(f *pflag.FlagSet, s *runs.Spec) {
	c := &s.Train.Config
	f.StringVar(&s.Preset, "preset", s.Preset, "hyper-parameters of a paper, which other flags override: "+strings.Join(training.Presets.Names(), ", "))
	cli.BindModel(f, &s.Model, &s.Device)
	f.StringVar(&s.CacheDType, "cache-dtype", s.CacheDType, model.CacheDTypeUsage)
	f.StringSliceVar((*[]string)(&s.Data), "data", s.Data, "samples of train generate: files, folders or s3://BUCKET/NAME, \"-\" is standard input; with --label context texts")
	f.StringSliceVar((*[]string)(&s.HeldOut), "held-out", s.HeldOut, "files of samples to validate on; empty holds out a tenth of --data, at most --validate samples")
	f.StringVar(&s.Tasks, "task", s.Tasks, "synthetic tasks, comma-separated, or all")
	f.IntVar(&s.Tokens, "tokens", s.Tokens, "prompt length of the synthetic tasks")
	f.IntVar(&s.Shortest, "shortest", s.Shortest, "least tokens of a prompt that is a part of a text")
	f.IntVar(&s.Longest, "longest", s.Longest, "most tokens of a prompt that is a part of a text")
	f.StringVar(&s.Heads, "heads", s.Heads, "file of train budgets that --head-weights learned reads; empty is what ships for the model")
	f.IntVar(&c.Steps, "steps", c.Steps, "optimiser steps")
	f.IntVar(&s.Epochs, "epochs", s.Epochs, "passes over --data, instead of --steps")
	f.IntVar(&c.Batch, "batch", c.Batch, "samples per step")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "seed of the order of the data and of the initialisation")
	f.IntVar(&c.MaxResponse, "max-response", c.MaxResponse, "most tokens used of a sample's response")
	f.IntVar(&c.Warmup, "warmup", c.Warmup, "steps of linear warm-up of the learning rate; 0 leaves it to --warmup-ratio")
	f.Float64Var(&c.WarmupRatio, "warmup-ratio", c.WarmupRatio, "share of the steps that is linear warm-up of the learning rate")
	f.StringVar(&c.Schedule, "schedule", c.Schedule, "learning rate after the warm-up: cosine or constant")
	f.Float64Var(&c.FinalRatio, "final-ratio", c.FinalRatio, "learning rate at the end of the cosine schedule, as a share of the peak")
	f.Float64Var(&c.Beta1, "beta1", c.Beta1, "AdamW: decay of the mean gradient")
	f.Float64Var(&c.Beta2, "beta2", c.Beta2, "AdamW: decay of the mean squared gradient")
	f.Float64Var(&c.Epsilon, "epsilon", c.Epsilon, "AdamW: added to the root of the mean squared gradient")
	f.Float64Var(&c.WeightDecay, "weight-decay", c.WeightDecay, "AdamW: decoupled weight decay; 0 is Adam")
	f.Float64Var(&c.Clip, "clip", c.Clip, "largest global norm of the gradient, which is scaled down to it; 0 does not clip")
	f.IntVar(&s.Workers, "workers", s.Workers, "samples worked on at the same time; 0 chooses by the model's size")
	f.Var(&s.CacheMemory, "cache-memory", "memory for keys, values and targets of samples that come again, as 512MiB or 1GB")
	f.Var(&s.CacheDisk, "cache-disk", "disk space for keys, values and targets beyond --cache-memory, as 20GB")
	v := &c.Validation
	f.IntVar(&v.Samples, "validate", v.Samples, "number of held-out samples to validate on; 0 does not validate")
	f.IntVar(&v.Every, "validate-every", v.Every, "steps between validations; the best one's parameters are exported; 0 validates at the end only")
	f.Var(&v.Budgets, "validate-budgets", "budgets at which validations measure: KV entries per KV head and layer, or shares, as 10%")
	f.IntVar(&v.Patience, "patience", v.Patience, "validations without a better loss after which the run stops; 0 goes on to the end")
	f.StringVar(&s.RunDir, "run", s.RunDir, "folder for configuration, log, TensorBoard events, curves and state")
	f.StringVar(&s.Log, "log", s.Log, "JSONL file for every step's numbers")
	f.BoolVar(&s.Replace, "replace", s.Replace, "replace adapter folders that exist, and an earlier run in --run")
	f.StringVar(&s.Checkpoint, "checkpoint", s.Checkpoint, "file for the run's state, written every --checkpoint-every steps and at a stop; empty is a file in --run")
	f.IntVar(&s.CheckpointEvery, "checkpoint-every", s.CheckpointEvery, "steps between checkpoints")
	f.StringVar(&s.Export, "export", s.Export, "folder or s3://BUCKET/NAME for a copy of the adapter; several get their names below it")
	f.StringVar(&s.Upload, "upload", s.Upload, "folder or s3://BUCKET/NAME for a copy of every checkpoint, from which --resume can go on")
	s.S3.Bind(f)
	f.BoolVar(&s.Resume, "resume", false, "go on from the run's checkpoint, if there is one")
	f.BoolVar(&s.AcceptChangedData, "accept-changed-data", false, "with --resume, go on although the data have changed since the run was begun")
}

// bindSet adds the flag that reaches every key of a file.
func bindSet(f *pflag.FlagSet, s *runs.Spec) {
	f.StringArrayVar(&s.Sets, "set", nil, "KEY=VALUE over the configuration, as train.steps=8; may be repeated")
}
