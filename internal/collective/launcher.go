package collective

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// launched is what a launcher tells a process of its place, before any library is loaded.
type launched struct {
	size  int
	local int
	by    string // the launcher
}

// launcher is what one gives its processes in the environment.
type launcher struct {
	by                string
	size, rank, local string // variables
	needs, without    string // the variable without which processes cannot find each other, and what gives it
}

var launchers = []launcher{
	{by: "mpirun", size: "OMPI_COMM_WORLD_SIZE", rank: "OMPI_COMM_WORLD_RANK", local: "OMPI_COMM_WORLD_LOCAL_RANK"},
	{by: "srun", size: "SLURM_STEP_NUM_TASKS", rank: "SLURM_PROCID", local: "SLURM_LOCALID", needs: "PMIX_RANK", without: "srun --mpi=pmix"},
	{by: "the launcher of another MPI", size: "PMI_SIZE", rank: "PMI_RANK", local: "MPI_LOCALRANKID", needs: "OMPI_COMM_WORLD_SIZE", without: "the mpirun of Open MPI"},
}

// Launched tells whether a launcher has started this process with others: its name and this
// process's number, as its environment says. Size is 1 for a process alone.
func Launched(env func(string) string) (by string, rank, size int) {
	for _, l := range launchers {
		if n, err := strconv.Atoi(env(l.size)); err == nil && n > 1 {
			rank, _ := strconv.Atoi(env(l.rank))
			return l.by, rank, n
		}
	}
	return "", 0, 1
}

// Beside is the number of this process among those that a launcher has started with it on this machine, and how many there
// are in all, as its environment says; 0 and 1 for a process alone.
func Beside(env func(string) string) (local, size int) {
	for _, l := range launchers {
		if n, err := strconv.Atoi(env(l.size)); err == nil && n > 1 {
			local, _ = strconv.Atoi(env(l.local))
			return max(0, local), n
		}
	}
	return 0, 1
}

// fromLauncher reads the environment that mpirun and srun give: size 1 is a process alone.
func fromLauncher(env func(string) string) (launched, error) {
	number := func(name string) (int, error) {
		n, err := strconv.Atoi(env(name))
		if err != nil || n < 0 || n > maxRanks {
			return 0, fmt.Errorf("ranks: %s=%.40q, want a number from 0 to %d", name, env(name), maxRanks)
		}
		return n, nil
	}
	for _, l := range launchers {
		if env(l.size) == "" {
			continue
		}
		size, err := number(l.size)
		if err != nil {
			return launched{}, err
		}
		if size <= 1 {
			continue
		}
		if l.needs != "" && env(l.needs) == "" {
			return launched{}, fmt.Errorf("ranks: %s has started %d processes which cannot find each other: want %s", l.by, size, l.without)
		}
		local := 0
		if env(l.local) != "" {
			if local, err = number(l.local); err != nil {
				return launched{}, err
			}
		}
		return launched{size, local, l.by}, nil
	}
	return launched{size: 1}, nil
}

// maxRanks bounds what an environment may ask for.
const maxRanks = 1 << 16

// World is the group of this process: alone, unless mpirun or srun have started it with
// others. MPI can be started once in a process: World may be called again only before
// the group is closed.
func World() (Group, error) {
	l, err := fromLauncher(os.Getenv)
	if err != nil || l.size == 1 {
		return Alone(), err
	}
	return openMPI(l)
}

// announcement is what a rank says of the others when it begins: rank 0 where a launcher was
// used; "" is nothing.
func announcement(env func(string) string, rank, size int) string {
	for _, l := range launchers {
		n, err := strconv.Atoi(env(l.size))
		switch {
		case err != nil || n < 1 || rank > 0:
		case size > 1:
			return fmt.Sprintf("rank 0 of %d, which %s has started: one run", size, l.by)
		default:
			return fmt.Sprintf("rank 0 of 1: %s has started no other process", l.by)
		}
	}
	return ""
}

// OnRanks runs f as one of the ranks that a launcher has started, or alone. What goes wrong on
// one of them ends all. log is told how many there are.
func OnRanks(log io.Writer, f func(g Group) error) error {
	g, err := World()
	if err != nil {
		return err
	}
	if text := announcement(os.Getenv, g.Rank(), g.Size()); text != "" {
		fmt.Fprintln(log, text)
	}
	err = f(g)
	if err == nil || errors.As(err, new(together)) {
		return errors.Join(err, g.Close())
	}
	g.Fail(err)
	return err
}

// together is an error that all ranks have at the same time.
type together struct{ error }

func (t together) Unwrap() error { return t.error }

// Together marks the error of a run that all ranks have ended after the same step: none of
// them has to be told, and rank 0 has the time it takes to save the state.
func Together(err error) error { return together{err} }
