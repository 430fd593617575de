"""Clusters on given devices, one for each OSD; databases and logs in files beside."""
import os, subprocess
from side_by_side import Ours
from stock_cluster import StockCluster

class OursOnDisks(Ours):
    """OSDs of `up` on given devices; database and log stay in the OSD's directory."""

    def __init__(self, bin, dir, port, root, devices):
        super().__init__(bin, dir, port, root)
        self.devices = devices

    def make_disks(self):
        subprocess.run([self.bin, "up", "--dir", self.outside, "--port", str(self.port), "--osds", "0"], check=True, stdout=subprocess.DEVNULL)
        for n in range(min(self.osds, len(self.devices))):
            self.make_place(n)

    def make_place(self, n):
        super().make_place(n)
        os.symlink(self.devices[n], "%s/osd.%d/block" % (self.outside, n))

class StockOnDisks(StockCluster):
    """BlueStore on given devices, with its DB in a file beside."""

    def __init__(self, dir, root, devices):
        super().__init__(dir, root)
        self.devices = devices

    def make_osd(self, i):
        osd = "%s/osd.%d" % (self.outside, i)
        os.makedirs(osd)
        os.symlink(self.devices[i], osd + "/block")
        with open("%s/db.%d" % (self.outside, i), "wb") as f:
            f.truncate(4 << 30)
        os.symlink("%s/db.%d" % (self.dir, i), osd + "/block.db")
        super().make_osd(i)
