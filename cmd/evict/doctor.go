package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"glimpse/internal/bytesize"
	"glimpse/internal/collective"
	"glimpse/internal/parallel"
	"glimpse/internal/simd"
	"glimpse/internal/tables"
	"glimpse/kernels"

	"glimpse/internal/cli"

	"github.com/spf13/cobra"
)

func newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Report what this machine offers to compute on, and what is missing",
		Long: `Report what this machine offers to compute on: the processor, and the CUDA driver,
devices, their memory and the libraries that were found. What is missing for a GPU to
be used is listed with what to do about it, and "--device auto" chooses by the same
facts. Devices are opened, which loads the kernels. A machine without a GPU is no error.`,
		Example: "  evict doctor\n  evict doctor --json",
		Args:    cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := report{Schema: "glimpse.doctor/1", Platform: runtime.GOOS + "/" + runtime.GOARCH, Threads: parallel.Threads(), Instructions: simd.Arithmetic(simd.Rounded), CUDA: kernels.Devices()}
			if r.CUDA.Usable() == nil {
				var failed []string
				for i := range r.CUDA.Devices {
					if err := kernels.CheckDevice(i); err != nil {
						failed = append(failed, err.Error())
					}
				}
				r.CUDA = kernels.Devices()
				r.CUDA.Missing = append(r.CUDA.Missing, failed...)
			}
			r.Auto, r.Why = kernels.ChooseDevice("auto")
			if path, version, err := collective.Library(); err != nil {
				r.MPI.Missing = err.Error()
			} else {
				r.MPI = mpiReport{Path: path, Version: version}
			}
			if asJSON {
				return cli.WriteJSON(cmd, r)
			}
			return r.print(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cli.Everyday(cmd, "json")
	return cmd
}

type report struct {
	Schema       string               `json:"schema"`
	Platform     string               `json:"platform"`
	Threads      int                  `json:"threads"`
	Instructions string               `json:"instructions"`
	CUDA         kernels.DeviceReport `json:"cuda"`
	Auto         string               `json:"auto"` // what --device auto chooses
	Why          string               `json:"why"`
	MPI          mpiReport            `json:"mpi"` // for runs of several processes
}

// mpiReport is the library that ranks would use, or why there is none.
type mpiReport struct {
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	Missing string `json:"missing,omitempty"`
}

func (r report) print(w io.Writer) error {
	out := tables.New(tables.Column{}, tables.Column{Wrap: true})
	line := func(name, format string, a ...any) { out.Add(name, fmt.Sprintf(format, a...)) }
	line("processor", "%s, %s, %d threads", r.Platform, r.Instructions, r.Threads)
	c := r.CUDA
	switch {
	case !c.Built:
		line("GPU support", "not in this binary")
	case c.Driver == "":
		line("CUDA driver", "none found")
	case c.Version == "":
		line("CUDA driver", "%s", c.Driver)
	default:
		line("CUDA driver", "%s, CUDA %s", c.Driver, c.Version)
	}
	for _, d := range c.Devices {
		free := ""
		if d.Free >= 0 {
			free = fmt.Sprintf(", %s free", bytesize.FormatMemory(d.Free))
		}
		line(d.Name, "%s, compute capability %s, %s%s", d.Model, d.Capability, bytesize.FormatMemory(d.Memory), free)
		if d.Kernels != "" {
			line("", "kernels: %s", d.Kernels)
		}
		if d.Attention != "" {
			line("", "prompts over bf16 caches: %s", d.Attention)
		}
	}
	for _, l := range c.Libraries {
		if l.Missing != "" {
			line(l.Name, "none: %s", firstLine(l.Missing))
		} else {
			line(l.Name, "%s %s", l.Path, l.Version)
		}
	}
	for _, m := range c.Missing {
		line("missing", "%s", m)
	}
	if r.MPI.Missing != "" {
		line("MPI", "none: %s", firstLine(r.MPI.Missing))
	} else {
		line("MPI", "%s, %s", r.MPI.Path, r.MPI.Version)
	}
	line("--device auto", "%s", r.Why)
	return out.Write(w, tables.Columns(w))
}

// firstLine is a text without its details.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
