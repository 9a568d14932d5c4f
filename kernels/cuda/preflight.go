//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"glimpse/kernels"
	"glimpse/kernels/cudadriver"

	"gorgonia.org/cu"
)

// The kernels for Hopper wait for copies and for each other. One that waits for ever makes
// its context unusable, and only the end of its process takes it off the device. So they
// run for the first time in a process of their own, this program once more, which is ended
// where it does not end. That is done once for a device, a driver and a build of the
// kernels: what came of it is a file of the user's cache folder.

// preflightVariable has the number of the device in the process that only checks it.
const preflightVariable = "GLIMPSE_CUDA_CHECK"

// preflightLimit is how long that process may take: most of it is the start of the driver.
var preflightLimit = 45 * time.Second

// Exit codes of that process.
const (
	preflightPassed     = 0
	preflightFailed     = 1
	preflightImpossible = 75 // the device gives no second context; not 2, with which Go ends a panic
)

// checkHere is all that the process does.
func checkHere(text string) int {
	ordinal, err := strconv.Atoi(text)
	if err == nil {
		_, err = openCUDA(ordinal)
	}
	if err != nil {
		fmt.Println(err)
		return preflightImpossible
	}
	if err := checkHopper(ordinal); err != nil {
		fmt.Println(err)
		return preflightFailed
	}
	return preflightPassed
}

// checkHopper runs the kernels for Hopper and no others, which must not be blamed on them.
func checkHopper(ordinal int) (err error) {
	defer kernels.CatchDevice(&err)
	opened.get(ordinal).uses(familyPrefillHopper)
	return nil
}

// preflightHopper tells why the kernels for Hopper must not run on a device: they did not end,
// or ended their process. What they compute is compared where they are used. nil says that
// they end, or that there is no telling.
func preflightHopper(ordinal int, model string) error {
	file := preflightFile(ordinal, model)
	if known, err := os.ReadFile(file); err == nil {
		if len(known) == 0 {
			return nil
		}
		return errors.New(string(known))
	}
	verdict, certain := runPreflight(ordinal)
	if !certain || file == "" {
		return verdict
	}
	text := ""
	if verdict != nil {
		text = verdict.Error()
	}
	// Where it cannot be kept the next start finds out for itself.
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err == nil {
		fresh := fmt.Sprintf("%s.%d", file, os.Getpid())
		if err = os.WriteFile(fresh, []byte(text), 0o644); err == nil {
			err = os.Rename(fresh, file)
		}
		forgetOld(filepath.Dir(file))
		if err != nil {
			_ = os.Remove(fresh)
		}
	}
	return verdict
}

// forgetOld removes all but the newest verdicts: every build of a program has its own.
func forgetOld(folder string) {
	const most = 32
	files, err := os.ReadDir(folder)
	if err != nil || len(files) <= most {
		return
	}
	age := func(e os.DirEntry) int64 {
		if info, err := e.Info(); err == nil {
			return info.ModTime().UnixNano()
		}
		return 0
	}
	slices.SortFunc(files, func(a, b os.DirEntry) int { return cmp.Compare(age(a), age(b)) })
	for _, e := range files[:len(files)-most] {
		_ = os.Remove(filepath.Join(folder, e.Name()))
	}
}

// preflightFile is where the verdict is kept; empty where there is no such place.
func preflightFile(ordinal int, model string) string {
	folder, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	h := sha256.New()
	fmt.Fprintln(h, ordinal, model, cu.Version(), os.Getenv(kernelsVariable))
	archives, err := archivesOf(packedKernels)
	if err != nil {
		return ""
	}
	for _, archive := range archives {
		h.Write(archive)
	}
	// The driver's version is in its file's name, size or time.
	if path, err := cudadriver.Driver(); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintln(h, path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return filepath.Join(folder, "glimpse", "hopper", fmt.Sprintf("%x", h.Sum(nil)[:16]))
}

// runPreflight runs the check in a process of its own; certain tells that it ran.
func runPreflight(ordinal int) (verdict error, certain bool) {
	program, err := os.Executable()
	if err != nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), preflightLimit)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", preflightVariable, ordinal))
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	switch text := strings.TrimSpace(out.String()); {
	case err == nil:
		return nil, true
	case ctx.Err() != nil:
		return fmt.Errorf("the kernels for Hopper did not end within %v", preflightLimit), true
	case !errors.As(err, &exit) || exit.ExitCode() == preflightImpossible:
		return nil, false
	default:
		return fmt.Errorf("the kernels for Hopper ended a process: %w: %s", err, text), true
	}
}
