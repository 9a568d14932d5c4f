package tasks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
	"glimpse/internal/regularfile"
	"glimpse/internal/yamlconfig"
)

// longProcAnswers are the answer lengths of HTML to TSV by the length of the table
// (example_usage.py of LongProc).
var longProcAnswers = map[string]int{"html_to_tsv_0.5k": 1024, "html_to_tsv_2k": 3072, "html_to_tsv_8k": 9216}

func init() {
	evaluation.Tasks.Add("longproc", evaluation.Task{
		Name:     "longproc",
		Doc:      "HTML to TSV: a table of what a page lists; F1, precision and recall of its rows",
		Source:   "LongProc, Ye et al. 2025, arXiv:2501.05414",
		Data:     "LongProc's folder data, or html_to_tsv in it: prompts.yaml, html_to_tsv_LENGTH.json and the pages in webpage",
		Subtasks: []string{"html_to_tsv_0.5k", "html_to_tsv_2k", "html_to_tsv_8k"}, NeedsData: true,
		Open: openLongProc,
	})
}

// longProcPage bounds the size of an HTML page.
const longProcPage = 64 << 20

func openLongProc(ctx context.Context, s *evaluation.Setting, name string) (*evaluation.Samples, error) {
	if objectstore.IsURL(s.Data) {
		return nil, errors.New("--data: got a URL, want a local folder: its pages lie in folders of it")
	}
	dir := s.Data
	if inner := filepath.Join(dir, "html_to_tsv"); isDir(inner) {
		dir = inner
	}
	prompt, err := longProcPrompt(filepath.Join(dir, "prompts.yaml"))
	if err != nil {
		return nil, err
	}
	in := *s
	in.Data = dir
	t, err := openFile(ctx, &in, []string{"tsv_f1", "tsv_precision", "tsv_recall"}, longProcAnswers[name], name)
	if err != nil {
		return nil, err
	}
	return t.samples(func(ctx context.Context, row datasets.Row) (*evaluation.Sample, error) {
		values, err := texts(row, "task_topic", "task_description", "tsv_header", "filtering_instruction", "html_path", "gt")
		if err != nil {
			return nil, err
		}
		page, err := readPage(dir, values["html_path"])
		if err != nil {
			return nil, fmt.Errorf(`field "html_path": %w`, err)
		}
		values["html_str"] = page
		ids, err := encodeLong(ctx, s, fillTemplate(prompt, values), false, t.most, halves)
		if err != nil {
			return nil, err
		}
		return t.turn(ids, nil, scoring.Reference{Answers: []string{values["gt"]}}), nil
	})
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// longProcPrompt reads the template of LongProc's prompts.yaml.
func longProcPrompt(path string) (string, error) {
	data, err := regularfile.Read(path, yamlconfig.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %w", evaluation.ErrNoData, err)
	}
	if err != nil {
		return "", err
	}
	var prompts struct {
		User string `yaml:"USER_PROMPT"`
	}
	if err := yaml.Unmarshal(data, &prompts); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if prompts.User == "" {
		return "", fmt.Errorf("%s: no USER_PROMPT", path)
	}
	return prompts.User, nil
}

// readPage reads a page by its path in LongProc's repository, ./data/html_to_tsv/webpage/NAME.
func readPage(dir, name string) (string, error) {
	root, err := os.OpenRoot(dir) // nothing outside of the folder is read
	if err != nil {
		return "", err
	}
	defer root.Close()
	data, err := regularfile.ReadFS(root.FS(), path.Join("webpage", path.Base(name)), longProcPage)
	return string(data), err
}
