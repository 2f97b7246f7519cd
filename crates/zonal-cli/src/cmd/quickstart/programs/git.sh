# 1500 files of less than 128 KiB, from the tree that was copied.
mkdir files
(cd ../tree && find . -type f -size -256 ! -path '*/.git/*' | head -n 1500 | tar -cf - -T -) |
    tar -xf - -C files
git init --quiet --initial-branch=main
git config user.name Zonal
git config user.email zonal@localhost
git add --all
git commit --quiet --message="all files"
for change in 1 2 3 4 5; do
    seq "$change" 1000 >notes.txt
    git add --all
    git commit --quiet --message="a change"
done
git gc --quiet
git fsck --strict --no-progress
test -z "$(git status --porcelain)"
echo "$(git ls-files files | wc -l) files, 6 commits, gc, fsck: clean"
