package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/internal/progress"

	"github.com/spf13/cobra"
)

// told is a command that says where it would compute, and counts to three.
func told(t *testing.T, args ...string) (out, info string, err error) {
	t.Helper()
	var device string
	root := &cobra.Command{Use: "tool", SilenceErrors: true, SilenceUsage: true}
	work := &cobra.Command{Use: "work", RunE: func(c *cobra.Command, _ []string) error {
		c.OutOrStdout().Write([]byte(device))
		bar := progress.New(c.ErrOrStderr(), "steps", 3)
		bar.Add(3)
		bar.Done()
		_, err := c.ErrOrStderr().Write([]byte("a note\n"))
		return err
	}}
	work.Flags().StringVar(&device, "device", "cpu", "where")
	root.AddCommand(work)
	Setup(root, nil)
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(args)
	err = root.Execute()
	return stdout.String(), stderr.String(), err
}

func defaultsIn(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(configVariable, path)
	return path
}

// A flag wins over the environment, that over the file, and that over the command's default.
func TestDefaults(t *testing.T) {
	path := defaultsIn(t, "device: cuda:1\nno_progress: true\n")
	out, info, err := told(t, "work", "-v")
	if err != nil || out != "cuda:1" || strings.Contains(info, "steps") || !strings.Contains(info, "--device is cuda:1, from "+path) {
		t.Errorf("file: %q, %q, %v", out, info, err)
	}
	t.Setenv("GLIMPSE_DEVICE", "cuda:2")
	if out, _, err := told(t, "work"); err != nil || out != "cuda:2" {
		t.Errorf("environment: %q, %v", out, err)
	}
	if out, _, err := told(t, "work", "--device", "cuda:3"); err != nil || out != "cuda:3" {
		t.Errorf("flag: %q, %v", out, err)
	}
	if out, _, err := told(t, "work", "--help-all"); err != nil || !strings.Contains(out, path) || !strings.Contains(out, `(default "cuda:2")`) {
		t.Errorf("help: %q, %v", out, err)
	}
	out, _, err = told(t, "config")
	if err != nil || !strings.Contains(out, "$GLIMPSE_DEVICE") || !strings.Contains(out, "file: "+path+"\n") {
		t.Errorf("config: %q, %v", out, err)
	}
}

func TestDefaultsErrors(t *testing.T) {
	for text, want := range map[string]string{
		"devise: cpu\n":   `did you mean "device"?`,
		"threads: many\n": "threads",
		"log_format: x\n": `unknown format "x"`,
		"- model\n":       "config.yaml",
	} {
		defaultsIn(t, text)
		if _, _, err := told(t, "work"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
		if _, _, err := told(t, "help", "work"); text != "log_format: x\n" && err != nil {
			t.Errorf("%q: help: %v", text, err)
		}
	}
	t.Setenv(configVariable, filepath.Join(t.TempDir(), "none.yaml"))
	if _, _, err := told(t, "work"); err == nil || !strings.Contains(err.Error(), configVariable) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// What is said beside results is nothing, everything, or one JSON object per line.
func TestTalk(t *testing.T) {
	if out, info, err := told(t, "work", "-q"); err != nil || out != "cpu" || info != "" {
		t.Errorf("quiet: %q, %q, %v", out, info, err)
	}
	if _, info, err := told(t, "work", "--no-progress"); err != nil || info != "a note\n" {
		t.Errorf("no progress: %q, %v", info, err)
	}
	_, info, err := told(t, "work", "--log-format", "json")
	lines := strings.Split(strings.TrimSpace(info), "\n")
	if err != nil || len(lines) != 2 {
		t.Fatalf("JSON: %q, %v, want two lines", info, err)
	}
	var got struct {
		Msg, Unit   string
		Done, Total int
	}
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil || got.Unit != "steps" || got.Done != 3 || got.Total != 3 {
		t.Errorf("progress %s: %+v, %v", lines[0], got, err)
	}
	if err := json.Unmarshal([]byte(lines[1]), &got); err != nil || got.Msg != "a note" {
		t.Errorf("note %s: %v", lines[1], err)
	}
	if _, _, err := told(t, "work", "-q", "-v"); err == nil {
		t.Error("quiet and verbose at once")
	}
	if _, _, err := told(t, "help", "nosuch"); err == nil || !strings.Contains(err.Error(), `"nosuch"`) {
		t.Errorf("help nosuch: %v", err)
	}
}
