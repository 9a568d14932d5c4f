package collective

import (
	"fmt"
	"os"
	"strconv"
)

// launched is what a launcher tells a process of its place, before any library is loaded.
type launched struct {
	size  int
	local int
	by    string // the launcher
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
	for _, l := range []struct{ by, size, local, needs, without string }{
		{by: "mpirun", size: "OMPI_COMM_WORLD_SIZE", local: "OMPI_COMM_WORLD_LOCAL_RANK"},
		{by: "srun", size: "SLURM_STEP_NUM_TASKS", local: "SLURM_LOCALID", needs: "PMIX_RANK", without: "srun --mpi=pmix"},
		{by: "the launcher of another MPI", size: "PMI_SIZE", local: "MPI_LOCALRANKID", needs: "OMPI_COMM_WORLD_SIZE", without: "the mpirun of Open MPI"},
	} {
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
