package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// testsResult is what test binaries came to on the device.
type testsResult struct {
	Binaries []string `json:"binaries"`
	Passed   int      `json:"passed"`
	Failed   int      `json:"failed"`
	Skipped  int      `json:"skipped"`
	NotRun   int      `json:"not_run"` // for want of time
	Seconds  float64  `json:"seconds"`
	LeftOut  []string `json:"left_out,omitempty"`
}

// problems say what keeps tests from vouching for other results; "" where nothing does.
func (r *testsResult) problems() string {
	switch {
	case r == nil:
		return "no tests have run"
	case r.Failed > 0:
		return fmt.Sprintf("%d failed", r.Failed)
	case r.Passed == 0:
		return "no test has passed"
	case r.NotRun > 0:
		return fmt.Sprintf("%d not run", r.NotRun)
	}
	return ""
}

// unverified is problems of the kernels' tests whose result lies in a folder.
func unverified(folder string) (string, error) {
	out := &result{}
	if _, err := readJSON(filepath.Join(folder, "tests.json"), out); err != nil {
		return "", err
	}
	return out.Tests.problems(), nil
}

// suite is a test binary: which of its tests, and the package's folder, where it runs.
type suite struct{ binary, run, folder string }

func init() {
	parts.Add("tests", part{"the kernels' tests on this driver: nothing counts before they pass", func(ctx context.Context, b *bench, out *result) error {
		run := "."
		if b.tiny {
			run = "Conform/cuda/RMSNorm"
		}
		return b.suites(ctx, out, []suite{{"cuda.test", run, ""}})
	}})
	parts.Add("models", part{"the tests of models, policies and training on this driver", func(ctx context.Context, b *bench, out *result) error {
		return b.suites(ctx, out, []suite{
			{"model.test", "TestAgainstTransformers/.*/cuda|TestReferenceModelAgainstNumPy/cuda|TestCache|TestRetain|TestBackendsAgree|TestObservations|CUDA", "model"},
			{"eviction.test", "TestKeptSets|CUDA", "eviction"},
			{"training.test", "CUDA", "training"},
		})
	}})
}

// counts is the last line of lab/gpu/each_test.sh.
var counts = regexp.MustCompile(`(?m)^(\d+) passed, (\d+) failed, (\d+) skipped, (\d+) not run$`)

// suites runs test binaries, each test in a process of its own; a binary that is not there,
// or whose package's folder is not, is left out.
func (b *bench) suites(ctx context.Context, out *result, all []suite) error {
	r := &testsResult{}
	out.Tests = r
	start := time.Now()
	var failed error
	for _, s := range all {
		binary, err := filepath.Abs(filepath.Join(b.binaries, s.binary))
		if err != nil {
			return err
		}
		folder := s.folder
		if folder == "" {
			folder = filepath.Dir(binary)
		}
		if errors.Is(exists(binary), fs.ErrNotExist) || errors.Is(exists(folder), fs.ErrNotExist) {
			if s.folder == "" {
				return fmt.Errorf("%s is not there", binary)
			}
			r.LeftOut = append(r.LeftOut, s.binary)
			continue
		}
		if folder, err = filepath.Abs(folder); err != nil {
			return err
		}
		logs, err := filepath.Abs(filepath.Join(b.out, "logs", s.binary))
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, b.eachTest, "--run", s.run, "--folder", folder, "--logs", logs,
			"--seconds", strconv.Itoa(int((b.limit - time.Since(start)).Seconds())), binary)
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if _, writeErr := os.Stdout.Write(text); writeErr != nil {
			return writeErr
		}
		r.Binaries = append(r.Binaries, s.binary)
		m := counts.FindSubmatch(text)
		if m == nil {
			failed = errors.Join(failed, fmt.Errorf("%s: its tests could not be run: %v", s.binary, err))
			continue
		}
		var n [4]int
		for i := range n {
			if n[i], err = strconv.Atoi(string(m[i+1])); err != nil {
				return err
			}
		}
		r.Passed, r.Failed, r.Skipped, r.NotRun = r.Passed+n[0], r.Failed+n[1], r.Skipped+n[2], r.NotRun+n[3]
	}
	r.Seconds = time.Since(start).Seconds()
	if what := r.problems(); what != "" && failed == nil && len(r.Binaries) > 0 {
		failed = fmt.Errorf("%s; logs are in %s", what, filepath.Join(b.out, "logs"))
	}
	return failed
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}
