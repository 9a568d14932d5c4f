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
	"strings"
	"time"
)

// testsResult is what test binaries came to on the device.
type testsResult struct {
	Binaries []string `json:"binaries"`
	Passed   int      `json:"passed"`
	Failed   int      `json:"failed"`
	Seconds  float64  `json:"seconds"`
	LeftOut  []string `json:"left_out,omitempty"`
}

// suite is a test binary: which of its tests, and the package's folder, where it runs.
type suite struct{ binary, run, folder string }

func init() {
	parts.Add("tests", part{"the kernels' tests on this driver: nothing counts before they pass", func(ctx context.Context, b *bench, out *result) error {
		run := "."
		if b.tiny {
			run = "Conform/cuda/RMSNorm"
		}
		return b.suites(ctx, out, []suite{{"kernels.test", run, ""}})
	}})
	parts.Add("models", part{"the tests of models, policies and training on this driver", func(ctx context.Context, b *bench, out *result) error {
		return b.suites(ctx, out, []suite{
			{"model.test", "TestAgainstTransformers/.*/cuda|TestReferenceModelAgainstNumPy/cuda|TestCache|TestRetain|TestBackendsAgree|TestObservations|CUDA", "model"},
			{"eviction.test", "TestKeptSets|CUDA", "eviction"},
			{"train.test", "CUDA", "internal/train"},
		})
	}})
}

// suites runs test binaries; one that is not there, or whose package's folder is not, is
// left out.
func (b *bench) suites(ctx context.Context, out *result, all []suite) error {
	r := &testsResult{}
	out.Tests = r
	logPath := filepath.Join(b.out, out.Part+".log")
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer log.Close()
	start := time.Now()
	var failed error
	for _, s := range all {
		binary, err := filepath.Abs(filepath.Join(b.binaries, s.binary))
		if err != nil {
			return err
		}
		folder := s.folder
		if folder == "" { // the fat binaries lie beside it
			folder = filepath.Dir(binary)
		}
		if errors.Is(exists(binary), fs.ErrNotExist) || errors.Is(exists(folder), fs.ErrNotExist) {
			if s.folder == "" {
				return fmt.Errorf("%s is not there", binary)
			}
			r.LeftOut = append(r.LeftOut, s.binary)
			continue
		}
		cmd := exec.CommandContext(ctx, binary, "-test.v", "-test.timeout=7m", "-test.run="+s.run)
		cmd.Dir, cmd.Env = folder, os.Environ()
		if os.Getenv("GLIMPSE_CUDA_DRIVER") == "" {
			cmd.Env = append(cmd.Env, "GLIMPSE_CUDA_DRIVER=libcuda.so.1") // without a device tests fail, not skip
		}
		text, err := cmd.CombinedOutput()
		if _, writeErr := log.Write(text); writeErr != nil {
			return writeErr
		}
		passed := len(regexp.MustCompile(`(?m)^\s*--- PASS`).FindAll(text, -1))
		r.Binaries, r.Passed = append(r.Binaries, s.binary), r.Passed+passed
		r.Failed += len(regexp.MustCompile(`(?m)^\s*--- FAIL`).FindAll(text, -1))
		if err != nil && failed == nil {
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			failed = fmt.Errorf("%s: %w; the end of its output, all of it in %s:\n%s", s.binary, err, logPath, strings.Join(lines[max(0, len(lines)-20):], "\n"))
		} else if err == nil && passed == 0 {
			failed = fmt.Errorf("%s: no test has run", s.binary)
		}
	}
	r.Seconds = time.Since(start).Seconds()
	fmt.Printf("%d tests passed, %d failed in %.1f s; left out: %d binaries\n", r.Passed, r.Failed, r.Seconds, len(r.LeftOut))
	return failed
}

func exists(path string) error {
	_, err := os.Stat(path)
	return err
}
