package main

import (
	"fmt"
	"io"
	"strings"

	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
	"glimpse/internal/cli"
	"glimpse/internal/tables"

	"github.com/spf13/cobra"
)

func newTasks() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tasks [TASK]",
		Short: "List the tasks of evict eval, their options, and the metrics of texts",
		Long: `List the tasks that "evict eval --task" takes, what --data they need, and the metrics
that --metric takes. With the name of a task: its subtasks, its options with their
defaults, and where it comes from.`,
		Example: "  evict tasks\n  evict tasks ruler\n  evict tasks --json",
		Args:    cli.Args("[TASK]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return describeTask(cmd, args[0], asJSON)
			}
			type metric struct {
				Name   string `json:"name"`
				Doc    string `json:"doc"`
				Source string `json:"source"`
			}
			var tasks []taskRow
			for name, t := range evaluation.Tasks.All() {
				tasks = append(tasks, taskRowOf(name, t))
			}
			var metrics []metric
			for name, m := range scoring.Metrics.All() {
				metrics = append(metrics, metric{name, m.About, m.Source})
			}
			if asJSON {
				return cli.WriteJSON(cmd, struct {
					Schema  string    `json:"schema"`
					Tasks   []taskRow `json:"tasks"`
					Metrics []metric  `json:"metrics"`
				}{"glimpse.tasks/1", tasks, metrics})
			}
			byTask := tables.New(tables.Column{Head: "TASK"}, tables.Column{Head: "PARTS", Right: true}, tables.Column{Head: "DATA"}, tables.Column{Head: "WHAT", Wrap: true})
			for _, t := range tasks {
				parts, data := "", "none"
				if n := len(t.Subtasks); n > 0 {
					parts = fmt.Sprint(n)
				}
				switch {
				case t.NeedsData:
					data = "needed"
				case t.Data != "":
					data = "optional"
				}
				byTask.Add(t.Name, parts, data, t.Doc)
			}
			byMetric := tables.New(tables.Column{Head: "METRIC"}, tables.Column{Head: "WHAT", Wrap: true})
			for _, m := range metrics {
				byMetric.Add(m.Name, m.Doc)
			}
			return writeAll(cmd.OutOrStdout(), byTask, byMetric)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cli.Everyday(cmd, "json")
	return cmd
}

type taskRow struct {
	Name      string       `json:"name"`
	Doc       string       `json:"doc"`
	Source    string       `json:"source"`
	Data      string       `json:"data,omitempty"`
	NeedsData bool         `json:"needs_data"`
	Subtasks  []string     `json:"subtasks,omitempty"`
	Defaults  []string     `json:"default_subtasks,omitempty"` // that the name alone stands for; none: all
	Options   []taskOption `json:"options,omitempty"`
}

type taskOption struct {
	Name    string `json:"name"`
	Default string `json:"default"`
	Doc     string `json:"doc"`
}

func taskRowOf(name string, t evaluation.Task) taskRow {
	row := taskRow{Name: name, Doc: t.Doc, Source: t.Source, Data: t.Data, NeedsData: t.NeedsData, Subtasks: t.Subtasks, Defaults: t.Defaults}
	for _, o := range t.Options {
		row.Options = append(row.Options, taskOption(o))
	}
	return row
}

// describeTask tells all of one task.
func describeTask(cmd *cobra.Command, name string, asJSON bool) error {
	task, err := evaluation.Tasks.Lookup(name)
	if err != nil {
		return fmt.Errorf("tasks: %w", err)
	}
	t := taskRowOf(name, task)
	if asJSON {
		return cli.WriteJSON(cmd, struct {
			Schema string `json:"schema"`
			taskRow
		}{"glimpse.task/1", t})
	}
	about := details([][2]string{
		{"task", t.Name}, {"what", t.Doc}, {"source", t.Source}, {"data", t.Data},
		{"subtasks", strings.Join(t.Subtasks, ", ")}, {"by default", strings.Join(t.Defaults, ", ")},
	})
	if len(t.Options) == 0 {
		return writeAll(cmd.OutOrStdout(), about)
	}
	options := tables.New(tables.Column{Head: "OPTION"}, tables.Column{Head: "DEFAULT"}, tables.Column{Head: "WHAT", Wrap: true})
	for _, o := range t.Options {
		options.Add(t.Name+"."+o.Name, o.Default, o.Doc)
	}
	return writeAll(cmd.OutOrStdout(), about, options)
}

// details are a table of facts about something; lines without a text are left out.
func details(lines [][2]string) *tables.Table {
	t := tables.New(tables.Column{}, tables.Column{Wrap: true})
	for _, line := range lines {
		if line[1] != "" {
			t.Add(line[0], line[1])
		}
	}
	return t
}

// writeAll writes tables with an empty line between them.
func writeAll(w io.Writer, all ...*tables.Table) error {
	for i, t := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := t.Write(w, tables.Columns(w)); err != nil {
			return err
		}
	}
	return nil
}
