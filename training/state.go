package training

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"glimpse/checkpoints"
	"glimpse/datasets"
	"glimpse/internal/simd"
	"glimpse/kernels"
)

// runRecord is what a checkpoint says besides its tensors.
type runRecord struct {
	Step    int             `json:"step"` // optimiser steps done; also the position in the data
	Skipped int             `json:"skipped"`
	TooLong int             `json:"too_long,omitempty"`
	History history         `json:"history"`
	Config  json.RawMessage `json:"config"`
	Source  string          `json:"source"`
	Model   string          `json:"model_sha256"`
	// Bits are only promised to repeat on the same backend and instruction set.
	Device string `json:"device"`
	SIMD   string `json:"simd"`
	Cache  string `json:"cache,omitempty"` // type of the keys and values; "" is that of computations
	// What an export needs to know besides.
	ModelName  string `json:"model_name"`
	Format     string `json:"weight_format,omitempty"`
	Invocation []int  `json:"invocation_tokens"`
	Data       string `json:"data,omitempty"` // what synthetic prompts depend on
	// Contents are the files that samples come from, Accepted what of them was not, or is not known
	// to be, what the run was begun with.
	Contents datasets.Contents `json:"data_sha256,omitempty"`
	Accepted []string          `json:"accepted,omitempty"`
}

// describeRun describes the run as it stands.
func (t *Trainer) describeRun(modelSHA256 string) (runRecord, error) {
	config, err := json.Marshal(t.Config)
	cache := ""
	if d := t.Model.CacheDType(); d != t.Model.Backend.Compute() {
		cache = d.String()
	}
	return runRecord{
		Step: t.done, Skipped: t.skipped, TooLong: t.tooLong, History: t.history, Config: config, Source: t.source.Describe(), Data: t.source.DrawnFrom(), Model: modelSHA256,
		Device: kernels.DeviceOf(t.Model.Backend), SIMD: simd.Level(),
		ModelName: t.Model.Name, Format: t.Model.WeightFormat(), Invocation: t.Invocation, Cache: cache, Contents: t.Contents, Accepted: t.accepted,
	}, err
}

// tensors visits every tensor of the run's state by a name of its own.
func (t *Trainer) tensors(f func(name string, x *kernels.Tensor)) {
	for _, l := range t.learners {
		for i, p := range l.params {
			f(l.Name+"/"+p.Name, p.Tensor)
			f(l.Name+"/"+p.Name+"/m", l.m[i])
			f(l.Name+"/"+p.Name+"/v", l.v[i])
			if l.best != nil {
				f(l.Name+"/"+p.Name+"/best", l.best[i])
			}
		}
	}
}

// stateOf is a tensor's numbers on the host.
func stateOf(x *kernels.Tensor) checkpoints.StateTensor {
	v := checkpoints.StateTensor{Shape: x.Shape}
	if x = x.OnHost(); x.DType == kernels.F64 {
		v.F64 = x.F64()
	} else {
		v.F32 = x.F32()
	}
	return v
}

// takeTensor puts numbers that stateOf has read into a tensor.
func takeTensor(x *kernels.Tensor, v checkpoints.StateTensor) {
	if v.F64 != nil {
		kernels.Convert(x, kernels.FromF64(v.F64, x.Shape...))
	} else {
		kernels.Convert(x, kernels.FromF32(v.F32, x.Shape...))
	}
}

// Save writes a checkpoint, atomically, and keeps the one before it (see
// checkpoints.SaveState): parameters, moments and the position in
// the data, which is also that of the schedule. A run that goes on from it has
// the bits of one that was never stopped.
func (t *Trainer) Save(path, modelSHA256 string) error {
	record, err := t.describeRun(modelSHA256)
	if err != nil {
		return err
	}
	s := &checkpoints.State{Tensors: make(map[string]checkpoints.StateTensor)}
	if s.Run, err = json.Marshal(record); err != nil {
		return err
	}
	t.tensors(func(name string, x *kernels.Tensor) { s.Tensors[name] = stateOf(x) })
	return checkpoints.SaveState(path, s)
}

// ResumeLatest resumes from the checkpoint at path or, where that is missing or damaged,
// from the one before it, and returns the name of the file that it took. A damaged
// one is moved aside, to path + ".damaged", so that it never takes the place of the
// good one; note then says so, and is "" otherwise. Without any checkpoint the error
// is fs.ErrNotExist; where none can be used, it names both.
func (t *Trainer) ResumeLatest(path, modelSHA256 string) (from, note string, err error) {
	err = t.Resume(path, modelSHA256)
	if err == nil {
		return path, "", nil
	}
	missing := errors.Is(err, fs.ErrNotExist)
	if !missing && !errors.Is(err, checkpoints.ErrCorrupt) {
		return "", "", err
	}
	previous := checkpoints.PreviousState(path)
	if second := t.Resume(previous, modelSHA256); second != nil {
		if errors.Is(second, fs.ErrNotExist) {
			return "", "", err
		}
		return "", "", errors.Join(err, second)
	}
	if missing {
		return previous, fmt.Sprintf("checkpoint %s is missing", path), nil
	}
	damaged := path + ".damaged"
	if moved := os.Rename(path, damaged); moved != nil {
		return "", "", errors.Join(err, moved)
	}
	return previous, fmt.Sprintf("checkpoint %s is damaged (%v), and now is %s", path, err, damaged), nil
}

// Resume takes up a checkpoint of the same run: the same model, configuration,
// data, device and instruction set, but for more steps. Anything else is an error that names what
// differs, and the trainer is as it was.
func (t *Trainer) Resume(path, modelSHA256 string) error {
	s, err := checkpoints.ReadState(path)
	if err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("resume %s: %w", path, err) }
	var got runRecord
	if err := json.Unmarshal(s.Run, &got); err != nil {
		return fail(err)
	}
	want, err := t.describeRun(modelSHA256)
	if err != nil {
		return err
	}
	if got.Model != want.Model { // an earlier version may have had another name for the weights
		if known, err := t.Model.KnownAs(context.Background(), got.Model); err == nil && known == got.Model {
			want.Model = known
		}
	}
	note, err := t.sameRun(got, want)
	if err != nil {
		return fail(err)
	}
	t.tensors(func(name string, x *kernels.Tensor) {
		v, ok := s.Tensors[name]
		if !ok || len(v.F32)+len(v.F64) != x.Len() || (v.F64 != nil) != (x.DType == kernels.F64) {
			err = fail(fmt.Errorf("tensor %s: shape %v, want %v", name, v.Shape, x.Shape))
		}
	})
	if err != nil {
		return err
	}
	t.tensors(func(name string, x *kernels.Tensor) { takeTensor(x, s.Tensors[name]) })
	t.done, t.skipped, t.tooLong, t.history, t.accepted = got.Step, got.Skipped, got.TooLong, got.History, got.Accepted
	if note != "" {
		t.notice(note)
		t.accepted = append(t.accepted, fmt.Sprintf("after step %d: %s", t.done, note))
	}
	return nil
}

// sameRun is an error unless a checkpoint's record is of this run; note says which of its data has changed.
func (t *Trainer) sameRun(got, want runRecord) (note string, err error) {
	differ := func(what string, got, want any) error {
		return fmt.Errorf("%s: the checkpoint has %v, this run %v", what, got, want)
	}
	settings := settingsDiffer(got.Config, want.Config)
	switch {
	case got.Model != want.Model:
		return "", differ("model weights", got.Model, want.Model)
	case settings != nil:
		return "", settings
	case got.Data != "" && want.Data != "" && got.Data != want.Data:
		return "", differ("data", got.Data, want.Data)
	}
	if note, err = t.Contents.Since(got.Contents, t.AcceptChangedData); err != nil {
		return "", fmt.Errorf("%w; --accept-changed-data goes on all the same", err)
	}
	switch {
	case got.Source != want.Source && !(t.AcceptChangedData && note != ""):
		return "", differ("data", got.Source, want.Source)
	case !strings.HasPrefix(want.Device+" ", got.Device+" ") || got.SIMD != want.SIMD: // earlier versions say of a processor cpu alone
		return "", differ("device and instruction set", got.Device+" "+got.SIMD, want.Device+" "+want.SIMD)
	case got.Cache != want.Cache:
		return "", differ("type of the cache", cmp.Or(got.Cache, "float32"), cmp.Or(want.Cache, "float32"))
	case got.Step < 0 || got.Step > t.Config.Steps:
		return "", differ("step", got.Step, t.Config.Steps)
	case len(got.History.NonFinite) != len(t.learners) || len(got.History.Best) != len(t.learners):
		return "", differ("adapters in its history", len(got.History.Best), len(t.learners))
	}
	return note, nil
}

// Stopped tells that validation has ended the run before its last step.
func (t *Trainer) Stopped() bool { return t.history.Stopped }

// Done is the number of optimiser steps done.
func (t *Trainer) Done() int { return t.done }
