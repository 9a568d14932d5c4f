package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"glimpse/checkpoints/objectstore"
	reports "glimpse/evaluation/report"
	"glimpse/evaluation/runs"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/internal/outputs"
	"glimpse/internal/version"

	"github.com/spf13/cobra"
)

func newReport() *cobra.Command {
	var (
		o       = reports.Options{Samples: 3}
		budgets string
		outs    []string
		files   outputs.Files
		s3      objectstore.Settings
	)
	cmd := &cobra.Command{
		Use:   "report RUN…",
		Short: "Make one document of runs of eval: tables, charts, tests, answers",
		Long: `Make one document of the runs that "evict eval --out" has left: scores with the best and
second best marked, charts of quality against budget and against cost, bars by task, heat
maps of needles, bootstrap intervals and paired tests between policies, what was kept of
prompts, and answers.

--out writes a page that needs no other file and no network (.html) or Markdown (.md), and
may be given several times; without it the Markdown goes to standard output. Several runs are
joined: other models, other tasks, other policies on the same samples. A run that is not
finished is reported on as far as it is, and said to be so. The same runs give the same
bytes.`,
		Example: `  evict eval --task section --policy full,snapkv --budget 32,64 --samples 8 --out out/run --resume
  evict report out/run -o out/report.html -o out/report.md --replace
  evict report path/to/eval path/to/other-eval --baseline snapkv -o out/both.html --replace`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("report: got no argument, want RUN…: folders that evict eval --out has written")
			}
			if o.Samples < 0 {
				return fmt.Errorf("report: --samples: got %d, want at least 0", o.Samples)
			}
			for _, dir := range args {
				for _, name := range []string{runs.PredictionsFile, runs.MetricsFile, runs.TimingsFile, runs.ConfigFile, runs.EnvironmentFile, runs.KeptFile} {
					files.Input(filepath.Join(dir, name))
				}
			}
			if budgets != "" {
				var err error
				if o.Budgets, err = eviction.ParseBudgets(budgets); err != nil {
					return fmt.Errorf("report: %w", err)
				}
			}
			defer files.Close()
			var written []*outputs.File
			var errs []error
			for _, path := range outs {
				if _, err := form(path); err != nil {
					errs = append(errs, err)
					continue
				}
				written = append(written, files.Open("--out", path))
			}
			if err := errors.Join(append(errs, files.Err())...); err != nil {
				return fmt.Errorf("report: %w", err)
			}
			var stored []*runs.Stored
			for _, dir := range args {
				s, err := runs.Read(cmd.Context(), dir, o.Samples, s3)
				if err != nil {
					return fmt.Errorf("report: %w", err)
				}
				stored = append(stored, s)
			}
			o.Version = version.String()
			r, err := reports.New(stored, o)
			if err != nil {
				return fmt.Errorf("report: %w", err)
			}
			for _, n := range r.Notices {
				fmt.Fprintln(cmd.ErrOrStderr(), n)
			}
			if len(outs) == 0 {
				return r.WriteMarkdown(cmd.OutOrStdout())
			}
			for i, path := range outs {
				write, _ := form(path)
				if err := written[i].Write(func(w io.Writer) error { return write(r, w) }); err != nil {
					return fmt.Errorf("report: %w", err)
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&outs, "out", "o", nil, "file to write: .html, .md, or \"-\" for Markdown on standard output; may be repeated")
	f.StringVar(&o.Title, "title", "", "title of the document")
	f.StringVar(&o.Baseline, "baseline", "", "policy that the others are tested against (default the best at each budget)")
	f.StringSliceVar(&o.Highlight, "highlight", nil, "policies in colour, comma-separated (default the best and those with an adapter, at most ten)")
	f.StringSliceVar(&o.Policies, "policy", nil, "policies to report on, comma-separated (default all)")
	f.StringVar(&budgets, "budget", "", "budgets to report on, comma-separated (default all)")
	f.IntVar(&o.Samples, "samples", o.Samples, "samples of every task whose answers are shown")
	s3.Bind(f)
	files.Bind(f)
	cli.Everyday(cmd, "out", "replace", "title", "policy", "budget", "baseline", "highlight", "samples")
	return cmd
}

// form is how a file's name says that it is written.
func form(path string) (func(*reports.Report, io.Writer) error, error) {
	if path == "-" {
		return (*reports.Report).WriteMarkdown, nil
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".html", ".htm":
		return (*reports.Report).WriteHTML, nil
	case ".md", ".markdown":
		return (*reports.Report).WriteMarkdown, nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("--out: %s: got a folder, want a file, as %s", path, filepath.Join(path, "report.html"))
	}
	return nil, fmt.Errorf("--out: %s: want a name that ends in .html or .md, as %s.html", path, path)
}
